-- The life of a hold. What is answered is answered after the COMMIT: a client that does not read on keeps no row (SAFETY E7).

-- A client that waits lives for 2.7 s more: whoever is first looks four times a second, and whoever is behind a silent one is in within three
-- seconds. Mostly it has said so lately, and is felt: those who come together do not wait for one row. `pulse`: the session that has the named lock
-- of this client for as long as its process lives; 0: none has; NULL: as it was (what was sent before there was one may arrive after it), and
-- less than 0 at first: the session by which it came. That one takes a named lock of its own, and has it from then on: whoever asks for that
-- asks whether the session is there, and nothing else.
CREATE PROCEDURE fencelock_beat(IN p_client BINARY(16), IN p_pulse BIGINT, IN t BIGINT) SQL SECURITY INVOKER
BEGIN
  DECLARE v_said BOOLEAN;
  DECLARE v_came BIGINT DEFAULT 0;
  DECLARE v_lock VARBINARY(64) DEFAULT CONCAT('fencelock.', CONNECTION_ID());
  SELECT EXISTS (SELECT 1 FROM fencelock_client c
    WHERE c.client = p_client AND c.ends > t + 2450000 AND c.ends < t + 10000000 AND c.pulse = COALESCE(p_pulse, c.pulse)
      AND (p_pulse IS NOT NULL OR {felt})) INTO v_said;
  IF NOT v_said THEN
    -- It is had once, however often it is asked for. Whose is somebody else's shows nothing.
    IF p_pulse IS NULL AND (IS_USED_LOCK(v_lock) <=> CONNECTION_ID() OR GET_LOCK(v_lock, 0)) THEN
      SET v_came = -CONNECTION_ID();
    END IF;
    INSERT INTO fencelock_client (client, ends, pulse) VALUES (p_client, t + 2700000, COALESCE(p_pulse, v_came))
      ON DUPLICATE KEY UPDATE ends = t + 2700000, pulse = COALESCE(p_pulse, IF(pulse < 0, v_came, pulse));
  END IF;
END
//
-- The same of one who goes on waiting, outside of a transaction: what keeps it from being said decides nothing else.
CREATE PROCEDURE fencelock_goes_on(IN p_client BINARY(16), IN p_pulse BIGINT, IN t BIGINT) SQL SECURITY INVOKER
BEGIN
  DECLARE CONTINUE HANDLER FOR 1205, 1213 BEGIN END;
  CALL fencelock_beat(p_client, p_pulse, t);
END
//
-- From here on nobody looks for the pulse of this client.
CREATE PROCEDURE fencelock_fade(IN p_client BINARY(16)) SQL SECURITY INVOKER
BEGIN
  CALL fencelock_ready();
  CALL fencelock_beat(p_client, 0, {now});
END
//
-- Claims, or queues. It alone creates, beside an adoption (SAFETY A2).
CREATE PROCEDURE fencelock_acquire(IN p_space VARBINARY(512), IN p_name VARBINARY(512), IN p_hold BINARY(16), IN p_kind VARBINARY(16), IN p_claim VARBINARY(1), IN p_take BIGINT, IN p_size BIGINT, IN p_ttl BIGINT, IN p_not_after BIGINT, IN p_floor BIGINT, IN p_wait BOOLEAN, IN p_client BINARY(16), IN p_pulse BIGINT, IN p_who BLOB)
SQL SECURITY INVOKER
acquiring: BEGIN
  DECLARE l_found, v_skewed, v_mine BOOLEAN DEFAULT FALSE;
  DECLARE l_kind VARBINARY(16);
  DECLARE l_hold BINARY(16);
  DECLARE l_size, l_fence, l_ttl, l_ends, t, v_ticket, v_number BIGINT;
  DECLARE v_code VARBINARY(8);
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    ROLLBACK;
    RESIGNAL;
  END;
  CALL fencelock_ready();
  SELECT TRUE, l.kind, l.size, l.hold, l.ttl, l.ends INTO l_found, l_kind, l_size, l_hold, l_ttl, l_ends
    FROM fencelock_lock l WHERE l.space = p_space AND l.name = p_name;
  -- It may have waited for the table.
  SET t = {now};
  IF NOT l_found THEN
    IF t > p_not_after THEN
      SELECT 'past' AS code, t AS now;
      LEAVE acquiring;
    END IF;
    CALL fencelock_create(p_space, p_name);
  ELSE
    -- A try that fails writes nothing and locks nothing.
    IF NOT p_wait THEN
      CALL fencelock_is_skewed(p_space, p_name, t, l_kind, l_hold, l_ttl, l_ends, v_skewed);
    END IF;
    IF NOT p_wait AND NOT v_skewed THEN
      CALL fencelock_refusal(p_space, p_name, t, FALSE, l_kind, l_size, l_hold, l_ends, p_kind, p_claim, p_take, p_size,
        9223372036854775807, v_code);
      IF v_code IS NOT NULL THEN
        -- After that: what an earlier copy of it was granted meanwhile is not in its way.
        SELECT l_hold <=> p_hold
          OR EXISTS (SELECT 1 FROM fencelock_holder h WHERE h.space = p_space AND h.name = p_name AND h.hold = p_hold) INTO v_mine;
      END IF;
      IF v_code IS NOT NULL AND NOT v_mine THEN
        CALL fencelock_refuse(v_code, p_space, p_name, t, l_kind, l_size, 9223372036854775807);
        LEAVE acquiring;
      END IF;
    END IF;
  END IF;
  CALL fencelock_take(p_space, p_name, TRUE, l_found, l_kind, l_size, l_fence, l_hold, l_ttl, l_ends, t);
  IF NOT l_found THEN
    COMMIT;
    SELECT 'locked' AS code, t AS now;
    LEAVE acquiring;
  END IF;
  CALL fencelock_settle(p_space, p_name, t, l_kind, l_hold, l_ttl, l_ends);
  CALL fencelock_find(p_space, p_name, t, l_kind, l_fence, l_hold, l_ends, p_hold, p_ttl, v_number);
  IF v_number IS NOT NULL THEN
    COMMIT;
    SELECT 'done' AS code, v_number AS number, t AS now;
    LEAVE acquiring;
  END IF;
  IF t > p_not_after THEN
    COMMIT;
    SELECT 'past' AS code, t AS now;
    LEAVE acquiring;
  END IF;
  -- Its place, if it comes again.
  SELECT q.ticket INTO v_ticket FROM fencelock_waiter q WHERE q.hold = p_hold AND q.space = p_space AND q.name = p_name;
  CALL fencelock_refusal(p_space, p_name, t, TRUE, l_kind, l_size, l_hold, l_ends, p_kind, p_claim, p_take, p_size,
    COALESCE(v_ticket, 9223372036854775807), v_code);
  -- It becomes another kind, since nobody lives who wants it as what it was: who of those comes back begins anew.
  IF l_kind <> p_kind AND (v_code IS NULL OR v_code = 'busy' AND p_wait) THEN
    DELETE FROM fencelock_waiter WHERE space = p_space AND name = p_name;
    SET v_ticket = NULL;
  END IF;
  IF v_code IS NULL THEN
    IF v_ticket IS NOT NULL THEN
      DELETE FROM fencelock_waiter WHERE space = p_space AND name = p_name AND ticket = v_ticket;
    END IF;
    CALL fencelock_give(p_space, p_name, t, l_fence, p_hold, p_kind, p_claim, p_take, p_size, p_ttl, p_floor, p_who, v_number);
    COMMIT;
    SELECT 'done' AS code, v_number AS number, t AS now;
    LEAVE acquiring;
  END IF;
  IF v_code <> 'busy' OR NOT p_wait THEN
    COMMIT;
    CALL fencelock_refuse(v_code, p_space, p_name, t, l_kind, l_size, 9223372036854775807);
    LEAVE acquiring;
  END IF;
  IF NOT (l_kind <=> p_kind) OR p_size > 0 AND l_size IS NULL THEN
    UPDATE fencelock_lock SET kind = p_kind, size = NULLIF(p_size, 0), hold = NULL WHERE space = p_space AND name = p_name;
  END IF;
  IF v_ticket IS NULL THEN
    CALL fencelock_beat(p_client, p_pulse, t);
    SELECT COALESCE(MAX(q.ticket), 0) + 1 INTO v_ticket FROM fencelock_waiter q WHERE q.space = p_space AND q.name = p_name;
    INSERT INTO fencelock_waiter (space, name, ticket, hold, claim, take, ttl, floor, client, since, who)
      VALUES (p_space, p_name, v_ticket, p_hold, p_claim, p_take, p_ttl, p_floor, p_client, t, p_who);
  END IF;
  COMMIT;
  CALL fencelock_tell('queued', p_space, p_name, t, v_ticket);
END
//
-- The answer to one who is refused.
CREATE PROCEDURE fencelock_refuse(IN p_code VARBINARY(8), IN p_space VARBINARY(512), IN p_name VARBINARY(512), IN t BIGINT, IN l_kind VARBINARY(16), IN l_size BIGINT, IN p_ticket BIGINT)
SQL SECURITY INVOKER
BEGIN
  CASE p_code
    WHEN 'size' THEN SELECT 'size' AS code, t AS now, l_size AS size;
    WHEN 'kind' THEN SELECT 'kind' AS code, t AS now, l_kind AS kind;
    ELSE CALL fencelock_tell(p_code, p_space, p_name, t, p_ticket);
  END CASE;
END
//
-- Looks again and again until this waiter's turn has come, or for so long (µs). In between is a fiftieth of the time for which the lock has
-- been held, within these limits, for him and each who is in his way. It locks nothing, and grants nothing: whoever asked may be gone (SAFETY
-- A2). 'turn': ask for it; 'unheard': whoever looked for the pulse that he has told of would take him for dead.
CREATE PROCEDURE fencelock_watch(IN p_space VARBINARY(512), IN p_name VARBINARY(512), IN p_hold BINARY(16), IN p_client BINARY(16), IN p_pulse BIGINT, IN p_long BIGINT, IN p_least BIGINT, IN p_most BIGINT, IN p_bell BOOLEAN)
SQL SECURITY INVOKER
watching: BEGIN
  DECLARE v_fits, v_skewed, v_alone, v_waits BOOLEAN DEFAULT FALSE;
  DECLARE l_kind VARBINARY(16);
  DECLARE l_hold BINARY(16);
  DECLARE w_claim VARBINARY(1);
  DECLARE l_size, l_ttl, l_ends, l_since, t, v_began, v_ahead, v_pause, v_long, w_ticket, w_take BIGINT;
  DECLARE v_hold BINARY(16);
  DECLARE v_bell VARBINARY(64);
  CALL fencelock_ready();
  SET v_began = {now};
  IF {lost} THEN
    SELECT 'unheard' AS code, v_began AS now;
    LEAVE watching;
  END IF;
  -- It is had once, however often it is asked for.
  IF p_bell AND NOT (IS_USED_LOCK(CONCAT('fencelock:', HEX(p_hold))) <=> CONNECTION_ID()) THEN
    DO GET_LOCK(CONCAT('fencelock:', HEX(p_hold)), 0);
  END IF;
  CALL fencelock_beat(p_client, p_pulse, v_began);
  SELECT q.ticket, q.claim, q.take INTO w_ticket, w_claim, w_take
    FROM fencelock_waiter q WHERE q.hold = p_hold AND q.space = p_space AND q.name = p_name;
  again: LOOP
    SET t = {now}, l_hold = NULL;
    SELECT l.kind, l.size, l.hold, l.ttl, l.ends, l.since INTO l_kind, l_size, l_hold, l_ttl, l_ends, l_since
      FROM fencelock_lock l WHERE l.space = p_space AND l.name = p_name;
    SET l_since = COALESCE(l_since, v_began), v_alone = l_hold IS NOT NULL AND l_ends > t;
    -- As `fencelock_is_skewed` has it: those who have it are read for their grants, too.
    SET v_skewed = COALESCE(v_alone AND l_ends > t + l_ttl + 1000000, FALSE);
    IF NOT v_alone AND l_kind IN ('rw_lock', 'semaphore') THEN
      -- Of those who have it now; else of whoever had it last.
      SELECT COALESCE(MAX(h.since), l_since), COALESCE(MAX(h.ends > t + h.ttl + 1000000), FALSE)
        INTO l_since, v_skewed FROM fencelock_holder h WHERE h.space = p_space AND h.name = p_name;
    END IF;
    -- Those of the dead are passed, and nobody sleeps longer for them. Readers are in no reader's way, and in a writer's all of them together.
    SELECT COALESCE(MAX(q.hold = p_hold), FALSE),
        COALESCE(SUM(q.ticket < w_ticket AND c.client IS NOT NULL AND q.claim <> 'r'), 0)
          + COALESCE(w_claim <> 'r' AND MAX(q.ticket < w_ticket AND c.client IS NOT NULL AND q.claim = 'r'), 0)
      INTO v_waits, v_ahead
      FROM fencelock_waiter q LEFT JOIN fencelock_client c ON c.client = q.client AND c.ends > t AND c.ends < t + 10000000 AND {felt}
      WHERE q.space = p_space AND q.name = p_name AND q.ticket <= w_ticket;
    -- Granted in another call, or sent away: its number in the queue may be somebody else's now.
    IF v_skewed OR NOT v_waits THEN
      SELECT 'turn' AS code, t AS now;
      LEAVE watching;
    END IF;
    IF NOT v_alone AND (w_claim = 'p' OR v_ahead = 0) THEN
      CALL fencelock_fits(p_space, p_name, t, FALSE, l_kind, l_size, l_hold, l_ends, w_ticket, w_claim, w_take, v_fits);
      -- The one in front may have been granted it in between: then nobody is in front, and it is not free.
      IF v_fits THEN
        SELECT NOT EXISTS (SELECT 1 FROM fencelock_lock l
          WHERE l.space = p_space AND l.name = p_name AND l.hold IS NOT NULL AND l.hold <> p_hold AND l.ends > t) INTO v_fits;
      END IF;
      IF v_fits THEN
        SELECT 'turn' AS code, t AS now;
        LEAVE watching;
      END IF;
    END IF;
    IF t NOT BETWEEN v_began AND v_began + p_long THEN
      LEAVE again;
    END IF;
    SET v_pause = LEAST(GREATEST((t - l_since) DIV 50, p_least), p_most);
    SET v_long = LEAST(8 * v_pause, v_began + p_long - t);
    SET v_pause = LEAST(v_pause * (1 + v_ahead), v_began + p_long - t), v_hold = NULL, v_bell = NULL;
    IF p_bell THEN
      -- Of whoever is next in front; else of who has it.
      SELECT q.hold INTO v_hold FROM fencelock_waiter q JOIN fencelock_client c ON c.client = q.client
        WHERE q.space = p_space AND q.name = p_name AND q.ticket < w_ticket AND c.ends > t AND c.ends < t + 10000000
        ORDER BY q.ticket DESC LIMIT 1;
      IF v_hold IS NULL AND l_hold IS NULL THEN
        SELECT h.hold INTO v_hold FROM fencelock_holder h
          WHERE h.space = p_space AND h.name = p_name AND h.ends > t ORDER BY h.ends LIMIT 1;
      END IF;
      SET v_bell = CONCAT('fencelock:', HEX(COALESCE(v_hold, l_hold)));
    END IF;
    -- Nobody has it; or this very session does, which would have it at once.
    IF v_bell IS NULL OR COALESCE(IS_USED_LOCK(v_bell), CONNECTION_ID()) = CONNECTION_ID() THEN
      DO SLEEP(v_pause / 1000000);
      ITERATE again;
    END IF;
    -- Those who want a lock alone need look only now and then, in case that a ring is lost, and when its lease ends.
    IF l_kind <> 'mutex' THEN
      SET v_long = v_pause;
    ELSEIF l_ends > t THEN
      SET v_long = LEAST(v_long, l_ends - t + 1000);
    END IF;
    IF GET_LOCK(v_bell, v_long / 1000000) THEN
      DO RELEASE_LOCK(v_bell);
    ELSEIF {now} < t + v_long DIV 2 THEN
      -- It counts whole seconds.
      DO SLEEP(v_pause / 1000000);
    END IF;
  END LOOP;
  CALL fencelock_tell('queued', p_space, p_name, t, COALESCE(w_ticket, 0));
END
//
-- A waiter's look: its turn may have come. It creates nothing (SAFETY A2), and while it has to wait it locks nothing and writes nothing but
-- that its client lives. Who was not told (`told`) that it has come is only told so; or 'unheard', as above.
--
-- *Invariant:* what it takes it takes for one who lives, and goes on: whoever is killed or stopped after he has sent it would have the lock
-- for a whole lease. So those who look now and then take nothing; and who was told has an end, after which his look does nothing, and is
-- granted nothing if his client's pulse is not felt.
CREATE PROCEDURE fencelock_refresh(IN p_space VARBINARY(512), IN p_name VARBINARY(512), IN p_hold BINARY(16), IN p_ttl BIGINT, IN p_not_after BIGINT, IN p_client BINARY(16), IN p_pulse BIGINT, IN p_told BOOLEAN)
SQL SECURITY INVOKER
looking: BEGIN
  DECLARE l_found, v_fits, v_skewed BOOLEAN DEFAULT FALSE;
  DECLARE l_kind VARBINARY(16);
  DECLARE w_claim VARBINARY(1);
  DECLARE w_who BLOB;
  DECLARE l_hold BINARY(16);
  DECLARE l_size, l_fence, l_ttl, l_ends, t, v_number, w_ticket, w_take, w_ttl, w_floor BIGINT;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    ROLLBACK;
    RESIGNAL;
  END;
  CALL fencelock_ready();
  IF {lost} THEN
    SELECT 'unheard' AS code, {now} AS now;
    LEAVE looking;
  END IF;
  IF NOT p_told THEN
    SELECT TRUE, l.kind, l.size, l.hold, l.ttl, l.ends INTO l_found, l_kind, l_size, l_hold, l_ttl, l_ends
      FROM fencelock_lock l WHERE l.space = p_space AND l.name = p_name;
    -- It may have waited for the table.
    SET t = {now};
    SELECT q.ticket, q.claim, q.take INTO w_ticket, w_claim, w_take
      FROM fencelock_waiter q WHERE q.hold = p_hold AND q.space = p_space AND q.name = p_name;
    CALL fencelock_is_skewed(p_space, p_name, t, l_kind, l_hold, l_ttl, l_ends, v_skewed);
    IF w_ticket IS NOT NULL AND NOT v_skewed THEN
      CALL fencelock_fits(p_space, p_name, t, FALSE, l_kind, l_size, l_hold, l_ends, w_ticket, w_claim, w_take, v_fits);
      IF NOT v_fits THEN
        CALL fencelock_beat(p_client, p_pulse, t);
        CALL fencelock_tell('queued', p_space, p_name, t, w_ticket);
        LEAVE looking;
      END IF;
    END IF;
    SELECT 'turn' AS code, t AS now;
    LEAVE looking;
  END IF;
  CALL fencelock_take(p_space, p_name, TRUE, l_found, l_kind, l_size, l_fence, l_hold, l_ttl, l_ends, t);
  IF NOT l_found THEN
    COMMIT;
    -- Whoever keeps the row may keep it for longer than its place would live.
    CALL fencelock_goes_on(p_client, p_pulse, t);
    CALL fencelock_missed('gone', p_space, p_name, t);
    LEAVE looking;
  END IF;
  IF t > p_not_after THEN
    COMMIT;
    SELECT 'past' AS code, t AS now;
    LEAVE looking;
  END IF;
  CALL fencelock_settle(p_space, p_name, t, l_kind, l_hold, l_ttl, l_ends);
  CALL fencelock_find(p_space, p_name, t, l_kind, l_fence, l_hold, l_ends, p_hold, p_ttl, v_number);
  IF v_number IS NOT NULL THEN
    COMMIT;
    SELECT 'done' AS code, v_number AS number, t AS now;
    LEAVE looking;
  END IF;
  -- It may be gone since.
  SET w_ticket = NULL;
  SELECT q.ticket, q.claim, q.take, q.ttl, q.floor, q.who INTO w_ticket, w_claim, w_take, w_ttl, w_floor, w_who
    FROM fencelock_waiter q WHERE q.hold = p_hold AND q.space = p_space AND q.name = p_name;
  IF w_ticket IS NULL OR l_kind IN ('session', 'cell') THEN
    COMMIT;
    CALL fencelock_tell('gone', p_space, p_name, t, 0);
    LEAVE looking;
  END IF;
  CALL fencelock_fits(p_space, p_name, t, TRUE, l_kind, l_size, l_hold, l_ends, w_ticket, w_claim, w_take, v_fits);
  IF NOT v_fits THEN
    COMMIT;
    CALL fencelock_goes_on(p_client, p_pulse, t);
    CALL fencelock_tell('queued', p_space, p_name, t, w_ticket);
    LEAVE looking;
  END IF;
  IF {lost} THEN
    COMMIT;
    SELECT 'unheard' AS code, t AS now;
    LEAVE looking;
  END IF;
  DELETE FROM fencelock_waiter WHERE space = p_space AND name = p_name AND ticket = w_ticket;
  CALL fencelock_give(p_space, p_name, t, l_fence, p_hold, l_kind, w_claim, w_take, COALESCE(l_size, 0), w_ttl, w_floor, w_who, v_number);
  COMMIT;
  SELECT 'done' AS code, v_number AS number, t AS now;
END
//
-- A row that was not taken is locked, or is not there.
CREATE PROCEDURE fencelock_missed(IN p_code VARBINARY(8), IN p_space VARBINARY(512), IN p_name VARBINARY(512), IN t BIGINT)
SQL SECURITY INVOKER
BEGIN
  SELECT IF(EXISTS (SELECT 1 FROM fencelock_lock l WHERE l.space = p_space AND l.name = p_name), 'locked', p_code) AS code, t AS now;
END
//
-- Ends the hold of this id and token, and no other; without a token a place in the queue, too.
CREATE PROCEDURE fencelock_release(IN p_space VARBINARY(512), IN p_name VARBINARY(512), IN p_hold BINARY(16), IN p_token BIGINT)
SQL SECURITY INVOKER
leaving: BEGIN
  DECLARE l_found, v_had BOOLEAN DEFAULT FALSE;
  DECLARE l_kind VARBINARY(16);
  DECLARE l_hold, v_hold BINARY(16);
  DECLARE l_size, l_fence, l_ttl, l_ends, t BIGINT;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    ROLLBACK;
    RESIGNAL;
  END;
  CALL fencelock_ready();
  CALL fencelock_take(p_space, p_name, FALSE, l_found, l_kind, l_size, l_fence, l_hold, l_ttl, l_ends, t);
  IF NOT l_found THEN
    COMMIT;
    CALL fencelock_missed('gone', p_space, p_name, t);
    LEAVE leaving;
  END IF;
  IF l_hold = p_hold AND (p_token IS NULL OR l_fence = p_token) THEN
    SET v_had = l_ends > t;
    UPDATE fencelock_lock SET hold = NULL WHERE space = p_space AND name = p_name;
  ELSE
    IF l_kind IN ('rw_lock', 'semaphore') THEN
      CALL fencelock_settle(p_space, p_name, t, l_kind, l_hold, l_ttl, l_ends);
      SELECT h.hold INTO v_hold FROM fencelock_holder h
        WHERE h.space = p_space AND h.name = p_name AND h.hold = p_hold AND (p_token IS NULL OR h.token = p_token);
      IF v_hold IS NOT NULL THEN
        SELECT TRUE INTO v_had FROM fencelock_holder h
          WHERE h.space = p_space AND h.name = p_name AND h.hold = p_hold FOR UPDATE SKIP LOCKED;
        IF NOT v_had THEN
          COMMIT;
          SELECT 'locked' AS code, t AS now;
          LEAVE leaving;
        END IF;
        DELETE FROM fencelock_holder WHERE space = p_space AND name = p_name AND hold = p_hold;
      END IF;
    END IF;
    IF p_token IS NULL THEN
      CALL fencelock_forget(p_space, p_name, p_hold);
    END IF;
  END IF;
  COMMIT;
  -- Its doorbell, if this session has it.
  DO RELEASE_LOCK(CONCAT('fencelock:', HEX(p_hold)));
  IF v_had THEN
    SELECT 'done' AS code, t AS now;
  ELSE
    CALL fencelock_tell('gone', p_space, p_name, t, 0);
  END IF;
END
//
-- A place in the queue ends.
CREATE PROCEDURE fencelock_forget(IN p_space VARBINARY(512), IN p_name VARBINARY(512), IN p_hold BINARY(16)) SQL SECURITY INVOKER
BEGIN
  DECLARE v_ticket BIGINT;
  SELECT q.ticket INTO v_ticket FROM fencelock_waiter q WHERE q.hold = p_hold AND q.space = p_space AND q.name = p_name;
  IF v_ticket IS NOT NULL THEN
    DELETE FROM fencelock_waiter WHERE space = p_space AND name = p_name AND ticket = v_ticket;
  END IF;
END
//
-- A place in the queue that nobody waits in any more. A hold it leaves alone: whoever says so may have been granted it meanwhile. One that
-- is gone keeps the lock's row from nobody: it is looked for first.
CREATE PROCEDURE fencelock_quit(IN p_space VARBINARY(512), IN p_name VARBINARY(512), IN p_hold BINARY(16)) SQL SECURITY INVOKER
BEGIN
  DECLARE l_found BOOLEAN DEFAULT FALSE;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    ROLLBACK;
    RESIGNAL;
  END;
  CALL fencelock_ready();
  SELECT NOT EXISTS (SELECT 1 FROM fencelock_waiter q WHERE q.hold = p_hold AND q.space = p_space AND q.name = p_name) INTO l_found;
  IF NOT l_found THEN
    CALL fencelock_begin();
    SELECT TRUE INTO l_found FROM fencelock_lock l WHERE l.space = p_space AND l.name = p_name FOR UPDATE SKIP LOCKED;
    IF l_found THEN
      CALL fencelock_forget(p_space, p_name, p_hold);
    END IF;
    COMMIT;
  END IF;
  SELECT IF(l_found, 'done', 'locked') AS code;
END
//
-- What this client waits for, by what is written here.
CREATE PROCEDURE fencelock_places(IN p_space VARBINARY(512), IN p_client BINARY(16)) SQL SECURITY INVOKER
BEGIN
  CALL fencelock_ready();
  SELECT q.name, q.hold FROM fencelock_waiter q WHERE q.client = p_client AND q.space = p_space;
END
//
-- Of many holds: each is the length of its name (2 bytes), its name, its id (16), its token and its ttl (8 each). One letter for each: e
-- extended, g gone, u nothing is known. What is over is not revived.
CREATE PROCEDURE fencelock_renew(IN p_space VARBINARY(512), IN p_all LONGBLOB) SQL SECURITY INVOKER
BEGIN
  DECLARE v_at INT DEFAULT 1;
  DECLARE v_length INT;
  DECLARE v_name VARBINARY(512);
  DECLARE v_hold, l_hold BINARY(16);
  DECLARE v_token, v_ttl, l_fence, l_ends, t BIGINT;
  DECLARE l_found, v_there BOOLEAN;
  DECLARE answers VARBINARY(4096) DEFAULT '';
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    ROLLBACK;
    RESIGNAL;
  END;
  CALL fencelock_ready();
  CALL fencelock_begin();
  renewing: WHILE v_at < LENGTH(p_all) DO
    SET v_length = CONV(HEX(SUBSTRING(p_all, v_at, 2)), 16, 10);
    SET v_name = SUBSTRING(p_all, v_at + 2, v_length);
    SET v_hold = SUBSTRING(p_all, v_at + 2 + v_length, 16);
    SET v_token = CONV(HEX(SUBSTRING(p_all, v_at + 18 + v_length, 8)), 16, 10);
    SET v_ttl = CONV(HEX(SUBSTRING(p_all, v_at + 26 + v_length, 8)), 16, 10);
    SET v_at = v_at + 34 + v_length;
    -- Looked at first: nobody is kept from a row that is somebody else's.
    SET l_hold = NULL;
    SELECT l.hold, l.fence INTO l_hold, l_fence FROM fencelock_lock l WHERE l.space = p_space AND l.name = v_name;
    SET l_found = FALSE;
    IF l_hold = v_hold AND l_fence = v_token THEN
      SET l_hold = NULL;
      SELECT TRUE, l.hold, l.fence, l.ends INTO l_found, l_hold, l_fence, l_ends
        FROM fencelock_lock l WHERE l.space = p_space AND l.name = v_name FOR UPDATE SKIP LOCKED;
      SET t = {now};
      IF NOT l_found THEN
        SET answers = CONCAT(answers, 'u');
        ITERATE renewing;
      ELSEIF l_hold = v_hold AND l_fence = v_token AND l_ends > t THEN
        UPDATE fencelock_lock SET ttl = GREATEST(ttl, v_ttl), ends = GREATEST(LEAST(ends, t + GREATEST(ttl, v_ttl)), t + v_ttl)
          WHERE space = p_space AND name = v_name;
        SET answers = CONCAT(answers, 'e');
        ITERATE renewing;
      END IF;
      -- It is over; or it has become a reader's meanwhile, which is written elsewhere.
    END IF;
    SELECT EXISTS (SELECT 1 FROM fencelock_holder h WHERE h.space = p_space AND h.name = v_name AND h.hold = v_hold) INTO v_there;
    IF NOT v_there THEN
      SET answers = CONCAT(answers, 'g');
    ELSE
      SET l_found = FALSE;
      SELECT TRUE, h.token, h.ends INTO l_found, l_fence, l_ends
        FROM fencelock_holder h WHERE h.space = p_space AND h.name = v_name AND h.hold = v_hold FOR UPDATE SKIP LOCKED;
      SET t = {now};
      IF NOT l_found THEN
        -- Kept by somebody, or gone since: that is known the next time.
        SET answers = CONCAT(answers, 'u');
      ELSEIF l_fence = v_token AND l_ends > t THEN
        UPDATE fencelock_holder SET ttl = GREATEST(ttl, v_ttl), ends = GREATEST(LEAST(ends, t + GREATEST(ttl, v_ttl)), t + v_ttl)
          WHERE space = p_space AND name = v_name AND hold = v_hold;
        SET answers = CONCAT(answers, 'e');
      ELSE
        SET answers = CONCAT(answers, 'g');
      END IF;
    END IF;
  END WHILE;
  COMMIT;
  SELECT answers AS answers;
END
//
-- The same hold: a writer's becomes a reader's, under its token. Another one: the hold passes to it, with a fresh token (SAFETY A5).
CREATE PROCEDURE fencelock_exchange(IN p_space VARBINARY(512), IN p_name VARBINARY(512), IN p_old BINARY(16), IN p_token BIGINT, IN p_new BINARY(16), IN p_claim VARBINARY(1), IN p_take BIGINT, IN p_ttl BIGINT, IN p_not_after BIGINT, IN p_floor BIGINT, IN p_who BLOB)
SQL SECURITY INVOKER
passing: BEGIN
  DECLARE l_found, h_found, v_mine BOOLEAN DEFAULT FALSE;
  DECLARE l_kind VARBINARY(16);
  DECLARE l_hold BINARY(16);
  DECLARE h_claim VARBINARY(1);
  DECLARE l_who, h_who BLOB;
  DECLARE l_size, l_fence, l_ttl, l_ends, l_since, h_take, h_ttl, h_ends, h_since, t, v_number BIGINT;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    ROLLBACK;
    RESIGNAL;
  END;
  CALL fencelock_ready();
  CALL fencelock_take(p_space, p_name, TRUE, l_found, l_kind, l_size, l_fence, l_hold, l_ttl, l_ends, t);
  IF NOT l_found THEN
    COMMIT;
    CALL fencelock_missed('busy', p_space, p_name, t);
    LEAVE passing;
  END IF;
  CALL fencelock_settle(p_space, p_name, t, l_kind, l_hold, l_ttl, l_ends);
  IF p_old <> p_new THEN
    CALL fencelock_find(p_space, p_name, t, l_kind, l_fence, l_hold, l_ends, p_new, p_ttl, v_number);
    IF v_number IS NOT NULL THEN
      COMMIT;
      SELECT 'done' AS code, v_number AS number, t AS now;
      LEAVE passing;
    END IF;
    IF t > p_not_after THEN
      COMMIT;
      SELECT 'past' AS code, t AS now;
      LEAVE passing;
    END IF;
  END IF;
  IF l_hold = p_old AND l_fence = p_token AND l_ends > t THEN
    SELECT l.since, l.who INTO l_since, l_who FROM fencelock_lock l WHERE l.space = p_space AND l.name = p_name;
    SET h_found = TRUE, h_claim = IF(l_kind = 'rw_lock', 'w', 'm'), h_take = 1, h_ttl = l_ttl, h_ends = l_ends, h_since = l_since,
      h_who = l_who;
  ELSEIF l_kind IN ('rw_lock', 'semaphore') THEN
    SELECT TRUE, h.claim, h.take, h.ttl, h.ends, h.since, h.who INTO h_found, h_claim, h_take, h_ttl, h_ends, h_since, h_who
      FROM fencelock_holder h
      WHERE h.space = p_space AND h.name = p_name AND h.hold = p_old AND h.token = p_token AND h.ends > t;
  END IF;
  IF NOT h_found OR p_old <> p_new AND (h_claim <> p_claim OR p_claim = 'p' AND h_take <> p_take) THEN
    COMMIT;
    CALL fencelock_tell('busy', p_space, p_name, t, 0);
    LEAVE passing;
  END IF;
  IF p_old = p_new THEN
    IF l_kind <> 'rw_lock' OR p_claim <> 'r' THEN
      COMMIT;
      SELECT 'never' AS code, t AS now;
      LEAVE passing;
    END IF;
    IF h_claim = 'w' THEN
      UPDATE fencelock_lock SET hold = NULL WHERE space = p_space AND name = p_name;
      INSERT INTO fencelock_holder (space, name, hold, claim, take, token, ttl, ends, since, who)
        VALUES (p_space, p_name, p_old, 'r', 1, p_token, GREATEST(h_ttl, p_ttl), GREATEST(h_ends, t + p_ttl), h_since, h_who);
      SET v_number = p_token;
    ELSE
      CALL fencelock_find(p_space, p_name, t, l_kind, l_fence, l_hold, l_ends, p_old, p_ttl, v_number);
    END IF;
    COMMIT;
    SELECT 'done' AS code, v_number AS number, t AS now;
    LEAVE passing;
  END IF;
  IF h_claim IN ('r', 'p') THEN
    SELECT TRUE INTO v_mine FROM fencelock_holder h
      WHERE h.space = p_space AND h.name = p_name AND h.hold = p_old FOR UPDATE SKIP LOCKED;
    IF NOT v_mine THEN
      COMMIT;
      SELECT 'locked' AS code, t AS now;
      LEAVE passing;
    END IF;
    DELETE FROM fencelock_holder WHERE space = p_space AND name = p_name AND hold = p_old;
  END IF;
  -- Without a note of its own it keeps the one that was there: host and process are the first two words.
  IF p_who = CONCAT(SUBSTRING_INDEX(p_who, ' ', 2), ' ') THEN
    SET p_who = CONCAT(p_who, SUBSTRING(h_who, LENGTH(SUBSTRING_INDEX(h_who, ' ', 2)) + 2));
  END IF;
  CALL fencelock_give(p_space, p_name, t, l_fence, p_new, l_kind, p_claim, h_take, COALESCE(l_size, 0), p_ttl, p_floor, p_who, v_number);
  COMMIT;
  SELECT 'done' AS code, v_number AS number, t AS now;
END
//
