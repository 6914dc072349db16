-- What is looked at, mended, and kept beside locks.

-- The lock itself, then who holds it, then who waits, in their order. It makes no record.
CREATE PROCEDURE fencelock_inspect(IN p_space VARBINARY(512), IN p_name VARBINARY(512)) SQL SECURITY INVOKER
BEGIN
  DECLARE t BIGINT;
  CALL fencelock_ready();
  SET t = {now};
  SELECT 'lock' AS code, l.kind, l.size, l.fence AS number,
      (SELECT 1 FROM fencelock_cell v WHERE v.space = p_space AND v.name = p_name AND v.value IS NOT NULL) AS held
    FROM fencelock_lock l WHERE l.space = p_space AND l.name = p_name;
  SELECT 'holder' AS code, l.hold, IF(l.kind = 'rw_lock', 'w', 'm') AS claim, 1 AS take, l.size, l.fence AS token, l.who,
      t - l.since AS held, l.ends - t AS rest
    FROM fencelock_lock l WHERE l.space = p_space AND l.name = p_name AND l.hold IS NOT NULL AND l.ends > t;
  SELECT 'holder' AS code, h.hold, h.claim, h.take, l.size, h.token, h.who, t - h.since AS held, h.ends - t AS rest
    FROM fencelock_holder h JOIN fencelock_lock l ON l.space = h.space AND l.name = h.name
    WHERE h.space = p_space AND h.name = p_name AND h.ends > t ORDER BY h.since, h.token;
  SELECT 'waiter' AS code, q.hold, q.claim, q.take, l.size, q.who, t - q.since AS held
    FROM fencelock_waiter q JOIN fencelock_client c ON c.client = q.client
      JOIN fencelock_lock l ON l.space = q.space AND l.name = q.name
    WHERE q.space = p_space AND q.name = p_name AND c.ends > t AND c.ends < t + 10000000 ORDER BY q.ticket;
  CALL fencelock_bearers(p_space, p_name, t);
END
//
-- Names that are held or waited for, from one on, before another one (NULL: to the end).
CREATE PROCEDURE fencelock_list(IN p_space VARBINARY(512), IN p_from VARBINARY(512), IN p_before VARBINARY(512), IN p_after VARBINARY(512), IN p_limit BIGINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE t BIGINT;
  CALL fencelock_ready();
  SET t = {now};
  SELECT l.name FROM fencelock_lock l
    WHERE l.space = p_space AND l.name >= p_from AND (p_before IS NULL OR l.name < p_before) AND (p_after IS NULL OR l.name > p_after)
      AND (l.hold IS NOT NULL AND l.ends > t
        OR EXISTS (SELECT 1 FROM fencelock_holder h WHERE h.space = l.space AND h.name = l.name AND h.ends > t)
        OR EXISTS (SELECT 1 FROM fencelock_waiter q JOIN fencelock_client c ON c.client = q.client
          WHERE q.space = l.space AND q.name = l.name AND c.ends > t AND c.ends < t + 10000000)
        OR l.kind = 'session' AND IS_USED_LOCK(COALESCE(l.named, 'fencelock.')) IS NOT NULL)
    ORDER BY l.name LIMIT p_limit;
END
//
-- Breaks the hold of this token, and no other.
CREATE PROCEDURE fencelock_force(IN p_space VARBINARY(512), IN p_name VARBINARY(512), IN p_token BIGINT) SQL SECURITY INVOKER
BEGIN
  DECLARE t BIGINT;
  DECLARE v_hold BINARY(16);
  CALL fencelock_ready();
  SET t = {now};
  SELECT l.hold INTO v_hold FROM fencelock_lock l
    WHERE l.space = p_space AND l.name = p_name AND l.hold IS NOT NULL AND l.fence = p_token AND l.ends > t;
  IF v_hold IS NULL THEN
    SELECT h.hold INTO v_hold FROM fencelock_holder h
      WHERE h.space = p_space AND h.name = p_name AND h.token = p_token AND h.ends > t LIMIT 1;
  END IF;
  IF v_hold IS NULL THEN
    CALL fencelock_tell('gone', p_space, p_name, t, 0);
  ELSE
    CALL fencelock_release(p_space, p_name, v_hold, p_token);
  END IF;
END
//
-- Compare and set of a semaphore's size (SAFETY K4). A late copy would undo what came after it, so it has an end.
CREATE PROCEDURE fencelock_resize(IN p_space VARBINARY(512), IN p_name VARBINARY(512), IN p_from BIGINT, IN p_to BIGINT, IN p_not_after BIGINT)
SQL SECURITY INVOKER
resizing: BEGIN
  DECLARE l_found, v_there, v_lives BOOLEAN DEFAULT FALSE;
  DECLARE l_kind VARBINARY(16);
  DECLARE l_hold BINARY(16);
  DECLARE l_size, l_fence, l_ttl, l_ends, t BIGINT;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    ROLLBACK;
    RESIGNAL;
  END;
  CALL fencelock_ready();
  SET t = {now};
  IF t > p_not_after THEN
    SELECT 'past' AS code, t AS now;
    LEAVE resizing;
  END IF;
  SELECT EXISTS (SELECT 1 FROM fencelock_lock l WHERE l.space = p_space AND l.name = p_name) INTO v_there;
  IF NOT v_there THEN
    CALL fencelock_create(p_space, p_name);
  END IF;
  CALL fencelock_take(p_space, p_name, TRUE, l_found, l_kind, l_size, l_fence, l_hold, l_ttl, l_ends, t);
  IF NOT l_found OR t > p_not_after THEN
    COMMIT;
    SELECT IF(l_found, 'past', 'locked') AS code, t AS now;
    LEAVE resizing;
  END IF;
  CALL fencelock_settle(p_space, p_name, t, l_kind, l_hold, l_ttl, l_ends);
  IF l_kind <> 'semaphore' THEN
    CALL fencelock_lives(p_space, p_name, t, TRUE, l_hold, l_ends, v_lives);
    IF v_lives THEN
      COMMIT;
      SELECT 'kind' AS code, t AS now, l_kind AS kind;
      LEAVE resizing;
    END IF;
  END IF;
  IF l_kind = 'semaphore' AND l_size NOT IN (p_from, p_to) THEN
    COMMIT;
    SELECT 'size' AS code, t AS now, l_size AS size;
    LEAVE resizing;
  END IF;
  -- As if it had been used now: it is kept for as long as what is used.
  UPDATE fencelock_lock SET kind = 'semaphore', size = p_to, fence = GREATEST(fence, t), hold = NULL WHERE space = p_space AND name = p_name;
  -- Who wants more than there is, or wanted something else, has no place any more.
  DELETE FROM fencelock_waiter WHERE space = p_space AND name = p_name AND (take > p_to OR claim <> 'p');
  COMMIT;
  SELECT 'done' AS code, t AS now;
END
//
-- A value with its version; or it is a live lock.
CREATE PROCEDURE fencelock_load(IN p_space VARBINARY(512), IN p_name VARBINARY(512)) SQL SECURITY INVOKER
loading: BEGIN
  DECLARE l_kind VARBINARY(16);
  DECLARE l_hold BINARY(16);
  DECLARE l_ends, t BIGINT;
  DECLARE v_lives BOOLEAN DEFAULT FALSE;
  CALL fencelock_ready();
  SET t = {now};
  SELECT l.kind, l.hold, l.ends INTO l_kind, l_hold, l_ends FROM fencelock_lock l WHERE l.space = p_space AND l.name = p_name;
  IF l_kind <> 'cell' THEN
    CALL fencelock_lives(p_space, p_name, t, FALSE, l_hold, l_ends, v_lives);
    -- It may have become a cell since that was read.
    SELECT v_lives AND EXISTS (SELECT 1 FROM fencelock_lock l WHERE l.space = p_space AND l.name = p_name AND l.kind = l_kind) INTO v_lives;
    IF v_lives THEN
      SELECT 'kind' AS code, l_kind AS kind;
      LEAVE loading;
    END IF;
  END IF;
  CALL fencelock_value(p_space, p_name);
END
//
-- What stands there; version 0: nothing yet.
CREATE PROCEDURE fencelock_value(IN p_space VARBINARY(512), IN p_name VARBINARY(512)) SQL SECURITY INVOKER
BEGIN
  SELECT 'value' AS code, COALESCE(c.version, 0) AS version, c.value
    FROM (SELECT 1 AS one) AS always LEFT JOIN fencelock_cell c ON c.space = p_space AND c.name = p_name;
END
//
-- Writes if the version is the expected one. What was written under this nonce is asked first, whatever stands there now (SAFETY A6).
CREATE PROCEDURE fencelock_swap(IN p_space VARBINARY(512), IN p_name VARBINARY(512), IN p_expected BIGINT, IN p_nonce BINARY(16), IN p_value LONGBLOB)
SQL SECURITY INVOKER
swapping: BEGIN
  DECLARE l_found, v_there, v_lives BOOLEAN DEFAULT FALSE;
  DECLARE l_kind VARBINARY(16);
  DECLARE l_hold BINARY(16);
  DECLARE l_size, l_fence, l_ttl, l_ends, t, v_version BIGINT;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    ROLLBACK;
    RESIGNAL;
  END;
  CALL fencelock_ready();
  SELECT EXISTS (SELECT 1 FROM fencelock_lock l WHERE l.space = p_space AND l.name = p_name) INTO v_there;
  IF NOT v_there THEN
    CALL fencelock_create(p_space, p_name);
  END IF;
  CALL fencelock_take(p_space, p_name, TRUE, l_found, l_kind, l_size, l_fence, l_hold, l_ttl, l_ends, t);
  IF NOT l_found THEN
    COMMIT;
    SELECT 'locked' AS code;
    LEAVE swapping;
  END IF;
  SELECT w.version INTO v_version FROM fencelock_write w WHERE w.space = p_space AND w.name = p_name AND w.nonce = p_nonce;
  IF v_version IS NOT NULL THEN
    COMMIT;
    SELECT 'done' AS code, v_version AS version;
    LEAVE swapping;
  END IF;
  CALL fencelock_settle(p_space, p_name, t, l_kind, l_hold, l_ttl, l_ends);
  IF l_kind <> 'cell' THEN
    CALL fencelock_lives(p_space, p_name, t, TRUE, l_hold, l_ends, v_lives);
    IF v_lives THEN
      COMMIT;
      SELECT 'kind' AS code, l_kind AS kind;
      LEAVE swapping;
    END IF;
  END IF;
  SELECT c.version INTO v_version FROM fencelock_cell c WHERE c.space = p_space AND c.name = p_name;
  IF COALESCE(v_version, 0) <> p_expected THEN
    COMMIT;
    CALL fencelock_value(p_space, p_name);
    LEAVE swapping;
  END IF;
  IF l_kind <> 'cell' THEN
    DELETE FROM fencelock_waiter WHERE space = p_space AND name = p_name;
  END IF;
  SET v_version = GREATEST(l_fence + 1, t);
  UPDATE fencelock_lock SET kind = 'cell', size = NULL, fence = v_version, hold = NULL WHERE space = p_space AND name = p_name;
  INSERT INTO fencelock_cell (space, name, version, value) VALUES (p_space, p_name, v_version, p_value)
    ON DUPLICATE KEY UPDATE version = v_version, value = p_value;
  DELETE FROM fencelock_write
    WHERE space = p_space AND name = p_name AND (written < t - 60000000 OR written > t + 60000000);
  INSERT INTO fencelock_write (space, name, nonce, version, written) VALUES (p_space, p_name, p_nonce, v_version, t);
  COMMIT;
  SELECT 'done' AS code, v_version AS version;
END
//
-- What nobody has used for so long goes, and what the dead have left. Tokens go on above those that are forgotten (SAFETY T1). One at a
-- time, for all who share the tables; nobody waits for it, and it waits for nobody. How many have gone.
CREATE PROCEDURE fencelock_clean(IN p_retention BIGINT) SQL SECURITY INVOKER
cleaning: BEGIN
  DECLARE t, v_fence, v_ticket, v_top, v_turn, v_floor BIGINT;
  DECLARE v_gone INT DEFAULT 0;
  DECLARE v_space, v_name VARBINARY(512);
  DECLARE v_id BINARY(16);
  DECLARE v_over, v_mine BOOLEAN DEFAULT FALSE;
  DECLARE dead_waiters CURSOR FOR
    SELECT q.space, q.name, q.ticket FROM fencelock_waiter q
      WHERE NOT EXISTS (SELECT 1 FROM fencelock_client c WHERE c.client = q.client AND c.ends > t - 30000000) LIMIT 1000;
  DECLARE dead_clients CURSOR FOR SELECT c.client FROM fencelock_client c WHERE c.ends < t - 60000000 LIMIT 1000;
  DECLARE old_holders CURSOR FOR SELECT h.space, h.name, h.hold FROM fencelock_holder h WHERE h.ends < t - 60000000 LIMIT 1000;
  DECLARE idle CURSOR FOR
    SELECT l.space, l.name FROM fencelock_lock l
      WHERE l.fence < t - p_retention AND (l.hold IS NULL OR l.ends < t - p_retention)
        AND NOT EXISTS (SELECT 1 FROM fencelock_holder h WHERE h.space = l.space AND h.name = l.name)
        AND NOT EXISTS (SELECT 1 FROM fencelock_waiter q WHERE q.space = l.space AND q.name = l.name)
        AND NOT EXISTS (SELECT 1 FROM fencelock_cell v WHERE v.space = l.space AND v.name = l.name AND v.value IS NOT NULL)
        AND NOT (l.kind <=> 'session' AND (l.until > t AND l.since <= t OR IS_USED_LOCK(COALESCE(l.named, 'fencelock.')) IS NOT NULL))
      LIMIT 200;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_over = TRUE;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    ROLLBACK;
    RESIGNAL;
  END;
  CALL fencelock_ready();
  CALL fencelock_begin();
  SELECT m.one INTO v_turn FROM fencelock_meta m WHERE m.one = 2 FOR UPDATE SKIP LOCKED;
  IF v_turn IS NULL THEN
    COMMIT;
    SELECT 0 AS gone;
    LEAVE cleaning;
  END IF;
  SET t = {now};
  SET v_over = FALSE;
  OPEN dead_waiters;
  each_waiter: LOOP
    FETCH dead_waiters INTO v_space, v_name, v_ticket;
    IF v_over THEN
      LEAVE each_waiter;
    END IF;
    SET v_mine = FALSE;
    -- Its client may have come to life again.
    SELECT TRUE INTO v_mine FROM fencelock_waiter q
      WHERE q.space = v_space AND q.name = v_name AND q.ticket = v_ticket
        AND NOT EXISTS (SELECT 1 FROM fencelock_client c WHERE c.client = q.client AND c.ends > t - 30000000)
      FOR UPDATE SKIP LOCKED;
    IF v_mine THEN
      DELETE FROM fencelock_waiter WHERE space = v_space AND name = v_name AND ticket = v_ticket;
    END IF;
    SET v_over = FALSE;
  END LOOP;
  CLOSE dead_waiters;
  SET v_over = FALSE;
  OPEN old_holders;
  each_holder: LOOP
    FETCH old_holders INTO v_space, v_name, v_id;
    IF v_over THEN
      LEAVE each_holder;
    END IF;
    SET v_mine = FALSE;
    SELECT TRUE INTO v_mine FROM fencelock_holder h
      WHERE h.space = v_space AND h.name = v_name AND h.hold = v_id AND h.ends < t - 60000000 FOR UPDATE SKIP LOCKED;
    IF v_mine THEN
      DELETE FROM fencelock_holder WHERE space = v_space AND name = v_name AND hold = v_id;
    END IF;
    SET v_over = FALSE;
  END LOOP;
  CLOSE old_holders;
  SET v_over = FALSE;
  OPEN dead_clients;
  each_client: LOOP
    FETCH dead_clients INTO v_id;
    IF v_over THEN
      LEAVE each_client;
    END IF;
    SET v_mine = FALSE;
    SELECT TRUE INTO v_mine FROM fencelock_client c WHERE c.client = v_id AND c.ends < t - 60000000 FOR UPDATE SKIP LOCKED;
    IF v_mine THEN
      DELETE FROM fencelock_client WHERE client = v_id;
    END IF;
    SET v_over = FALSE;
  END LOOP;
  CLOSE dead_clients;
  -- Whoever comes to life again has his row to write, and waits for no look.
  COMMIT;
  CALL fencelock_begin();
  SET v_turn = NULL;
  SELECT m.one INTO v_turn FROM fencelock_meta m WHERE m.one = 2 FOR UPDATE SKIP LOCKED;
  IF v_turn IS NULL THEN
    COMMIT;
    SELECT 0 AS gone;
    LEAVE cleaning;
  END IF;
  SET v_over = FALSE;
  OPEN idle;
  each_lock: LOOP
    FETCH idle INTO v_space, v_name;
    IF v_over THEN
      LEAVE each_lock;
    END IF;
    -- First what whoever makes a row reads first: so neither waits for the other with what the other one wants.
    IF v_floor IS NULL THEN
      SELECT m.floor INTO v_floor FROM fencelock_meta m WHERE m.one = 1 FOR UPDATE;
    END IF;
    SET v_mine = FALSE;
    -- Under its lock: nobody uses it, and nobody can begin to.
    SELECT TRUE, l.fence INTO v_mine, v_fence FROM fencelock_lock l
      WHERE l.space = v_space AND l.name = v_name AND l.fence < t - p_retention AND (l.hold IS NULL OR l.ends < t - p_retention)
      FOR UPDATE SKIP LOCKED;
    IF v_mine THEN
      SELECT NOT EXISTS (SELECT 1 FROM fencelock_holder h WHERE h.space = v_space AND h.name = v_name)
        AND NOT EXISTS (SELECT 1 FROM fencelock_waiter q WHERE q.space = v_space AND q.name = v_name)
        AND NOT EXISTS (SELECT 1 FROM fencelock_cell v WHERE v.space = v_space AND v.name = v_name AND v.value IS NOT NULL) INTO v_mine;
    END IF;
    IF v_mine THEN
      DELETE FROM fencelock_cell WHERE space = v_space AND name = v_name;
      DELETE FROM fencelock_write WHERE space = v_space AND name = v_name;
      DELETE FROM fencelock_lock WHERE space = v_space AND name = v_name;
      SET v_gone = v_gone + 1, v_top = GREATEST(COALESCE(v_top, 0), v_fence);
    END IF;
    SET v_over = FALSE;
  END LOOP;
  CLOSE idle;
  -- In the same transaction: whoever makes a row reads it.
  IF v_gone > 0 THEN
    UPDATE fencelock_meta SET floor = GREATEST(floor, v_top) WHERE one = 1;
  END IF;
  COMMIT;
  CALL fencelock_forget_bearers(t);
  SELECT v_gone AS gone;
END
//
