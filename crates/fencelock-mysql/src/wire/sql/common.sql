-- What the procedures have in common. A statement of its own reads the clock: SYSDATE, since NOW stands still within a call. What a look asks
-- it asks by SELECT … INTO: what stands in a SET or an IF locks the rows that it reads (the server's rule for whatever is no SELECT).

-- Whatever the session was before: times are in UTC, whoever meets a locked row does not wait for long, and a server that takes no
-- writes takes none of ours, also where the account might.
CREATE PROCEDURE fencelock_ready() SQL SECURITY INVOKER
BEGIN
  IF @@session.time_zone <> '+00:00' THEN
    SET SESSION time_zone = '+00:00';
  END IF;
  IF NOT @@session.autocommit THEN
    SET SESSION autocommit = 1;
  END IF;
  -- What is read without a transaction was committed, too.
  SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
  IF @@session.innodb_lock_wait_timeout > 1 THEN
    SET SESSION innodb_lock_wait_timeout = 1;
  END IF;
  -- Some say 1, some say ON.
  IF CONCAT(@@global.read_only) NOT IN ('0', 'OFF') THEN
    SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1290, MESSAGE_TEXT = 'the server is read-only';
  END IF;
END
//
-- The same for one who ends something, at a server that takes no writes, too.
CREATE PROCEDURE fencelock_ready_to_end() SQL SECURITY INVOKER
BEGIN
  DECLARE CONTINUE HANDLER FOR 1290 BEGIN END;
  CALL fencelock_ready();
END
//
-- Each statement of it sees what was committed before that statement began, whatever the server begins its transactions with.
CREATE PROCEDURE fencelock_begin() SQL SECURITY INVOKER
BEGIN
  -- A node of Galera hears first of all that the others have written by now: of the grant, say, that is given back here.
  /*M! IF @@session.wsrep_on THEN SET SESSION wsrep_sync_wait = 1; END IF; */
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  /*M! IF @@session.wsrep_on THEN SET SESSION wsrep_sync_wait = 0; END IF; */
END
//
-- Makes the lock's row, if it is missing. The floor is read under a lock: nobody who forgets rows raises it meanwhile, so a
-- token never falls below one that is forgotten (SAFETY T1).
CREATE PROCEDURE fencelock_create(IN p_space VARBINARY(512), IN p_name VARBINARY(512)) SQL SECURITY INVOKER
BEGIN
  DECLARE v_floor BIGINT;
  CALL fencelock_begin();
  SELECT m.floor INTO v_floor FROM fencelock_meta m WHERE m.one = 1 LOCK IN SHARE MODE;
  BEGIN
    DECLARE CONTINUE HANDLER FOR 1062 BEGIN END;
    -- As if it had been used now: a clean-up leaves it alone.
    INSERT INTO fencelock_lock (space, name, fence) VALUES (p_space, p_name, GREATEST(v_floor, {now}));
  END;
  -- The floor is free for others before this one waits for anything else; and where somebody else has made it, what that met was locked.
  COMMIT;
END
//
-- The lock's row, at the beginning of a transaction, and when that was. Whoever else has it mostly commits before an answer would have come
-- and gone, so that is looked for some times, for 3 ms in all. Whoever keeps it for longer is waited for by nobody (SAFETY E2).
--
-- *Invariant (SAFETY A2, E2):* whoever may grant, or take somebody's place in a queue (`p_grants`), waits for whoever has locked one of the tables
-- before it, and for no table after it: what is read of the clock then is when a lease begins, whether a command is over, and who is alive; and nobody's
-- row is kept by one who waits. (`FLUSH TABLES WITH READ LOCK` may come in between: the row is kept then, so what it grants late is found by whoever
-- takes it back.)
CREATE PROCEDURE fencelock_take(IN p_space VARBINARY(512), IN p_name VARBINARY(512), IN p_grants BOOLEAN, OUT l_found BOOLEAN, OUT l_kind VARBINARY(16), OUT l_size BIGINT, OUT l_fence BIGINT, OUT l_hold BINARY(16), OUT l_ttl BIGINT, OUT l_ends BIGINT, OUT t BIGINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE v_nap, v_none INT DEFAULT 100;
  SET l_found = FALSE;
  CALL fencelock_begin();
  IF p_grants THEN
    {tables};
  END IF;
  taking: LOOP
    SELECT TRUE, l.kind, l.size, l.fence, l.hold, l.ttl, l.ends INTO l_found, l_kind, l_size, l_fence, l_hold, l_ttl, l_ends
      FROM fencelock_lock l WHERE l.space = p_space AND l.name = p_name FOR UPDATE SKIP LOCKED;
    IF l_found OR v_nap > 1600 THEN
      LEAVE taking;
    END IF;
    DO SLEEP(v_nap / 1000000);
    SET v_nap = 2 * v_nap;
  END LOOP;
  SET t = {now};
END
//
-- Who is in the way, how many wait before this ticket, and how long until something ends by itself. It locks nothing, and comes after
-- the COMMIT of what it tells.
CREATE PROCEDURE fencelock_tell(IN p_code VARBINARY(8), IN p_space VARBINARY(512), IN p_name VARBINARY(512), IN t BIGINT, IN p_ticket BIGINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE v_ahead BIGINT DEFAULT 0;
  DECLARE v_kind, v_claim VARBINARY(16);
  DECLARE v_hold BINARY(16);
  DECLARE v_size, v_take, v_token, v_held, v_rest BIGINT;
  DECLARE v_who BLOB;
  IF p_ticket > 0 THEN
    SELECT COUNT(*) INTO v_ahead FROM (
      SELECT q.ticket FROM fencelock_waiter q JOIN fencelock_client c ON c.client = q.client
        WHERE q.space = p_space AND q.name = p_name AND q.ticket < p_ticket AND c.ends > t AND c.ends < t + 10000000
        LIMIT 100) AS them;
  END IF;
  SELECT l.kind, l.size, IF(l.ends > t, l.hold, NULL), IF(l.kind = 'rw_lock', 'w', 'm'), 1, l.fence, l.who, t - l.since, l.ends - t
    INTO v_kind, v_size, v_hold, v_claim, v_take, v_token, v_who, v_held, v_rest
    FROM fencelock_lock l WHERE l.space = p_space AND l.name = p_name;
  IF v_hold IS NULL THEN
    SET v_claim = NULL, v_take = NULL, v_token = NULL, v_who = NULL, v_held = NULL, v_rest = NULL;
    IF v_kind IN ('rw_lock', 'semaphore') THEN
      SELECT h.hold, h.claim, h.take, h.token, h.who, t - h.since, h.ends - t
        INTO v_hold, v_claim, v_take, v_token, v_who, v_held, v_rest
        FROM fencelock_holder h WHERE h.space = p_space AND h.name = p_name AND h.ends > t ORDER BY h.ends LIMIT 1;
    END IF;
  END IF;
  SELECT p_code AS code, t AS now, v_ahead AS ahead, v_rest AS rest, v_hold AS hold, v_claim AS claim, v_take AS take, v_size AS size,
    v_token AS token, v_who AS who, v_held AS held;
END
//
-- The clock was set back, and something ends later than its lease is long: whoever looks without the lock's row knows nothing by it.
-- By a second: what was given or renewed since the clock was read is not it.
CREATE PROCEDURE fencelock_is_skewed(IN p_space VARBINARY(512), IN p_name VARBINARY(512), IN t BIGINT, IN l_kind VARBINARY(16), IN l_hold BINARY(16), IN l_ttl BIGINT, IN l_ends BIGINT, OUT skewed BOOLEAN)
SQL SECURITY INVOKER
BEGIN
  SET skewed = COALESCE(l_hold IS NOT NULL AND l_ends > t + l_ttl + 1000000, FALSE);
  IF NOT skewed AND l_kind IN ('rw_lock', 'semaphore') THEN
    SELECT EXISTS (SELECT 1 FROM fencelock_holder h WHERE h.space = p_space AND h.name = p_name AND h.ends > t + h.ttl + 1000000) INTO skewed;
  END IF;
END
//
-- What is over goes, but what somebody's own transaction keeps (SAFETY E2: nobody waits for that); it counts on. A clock that was set back
-- has left ends that are further away than their leases are long, by a second at least: these are cut. (So much the clocks of Galera's nodes may
-- differ.) Only under the lock's row.
--
-- *Invariant:* readers and permits are renewed beside it. What was renewed after `t` ends later than a lease after `t`, and its holder counts on
-- that: so the clock is read anew, after the end was (SAFETY E2).
CREATE PROCEDURE fencelock_settle(IN p_space VARBINARY(512), IN p_name VARBINARY(512), IN t BIGINT, IN l_kind VARBINARY(16), IN l_hold BINARY(16), IN l_ttl BIGINT, INOUT l_ends BIGINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE v_hold BINARY(16);
  IF l_hold IS NOT NULL AND l_ends > t + l_ttl + 1000000 THEN
    SET l_ends = t + l_ttl;
    UPDATE fencelock_lock SET ends = l_ends WHERE space = p_space AND name = p_name;
  END IF;
  IF l_kind IN ('rw_lock', 'semaphore') THEN
    settling: LOOP
      -- Mostly there is nothing, and then no row is locked.
      SET v_hold = NULL;
      SELECT h.hold INTO v_hold FROM fencelock_holder h
        WHERE h.space = p_space AND h.name = p_name AND (h.ends <= t OR h.ends > {now} + h.ttl + 1000000) LIMIT 1;
      IF v_hold IS NULL THEN
        LEAVE settling;
      END IF;
      SET v_hold = NULL;
      SELECT h.hold INTO v_hold FROM fencelock_holder h
        WHERE h.space = p_space AND h.name = p_name AND (h.ends <= t OR h.ends > {now} + h.ttl + 1000000) LIMIT 1 FOR UPDATE SKIP LOCKED;
      IF v_hold IS NULL THEN
        LEAVE settling;
      END IF;
      DELETE FROM fencelock_holder WHERE space = p_space AND name = p_name AND hold = v_hold AND ends <= t;
      UPDATE fencelock_holder SET ends = {now} + ttl
        WHERE space = p_space AND name = p_name AND hold = v_hold AND ends > {now} + ttl + 1000000;
    END LOOP;
  END IF;
END
//
-- Whether anybody who lives waits in front of this ticket; `alone`: and wants it alone. Whoever said so lately lives; and where the session
-- that keeps its pulse is known, it is there: a client that is killed is dead at once. Before it has a pulse, which takes it a moment, the
-- session by which it came is there. One without a pulse for a moment keeps his place, and is passed.
CREATE PROCEDURE fencelock_in_front(IN p_space VARBINARY(512), IN p_name VARBINARY(512), IN t BIGINT, IN p_ticket BIGINT, IN alone BOOLEAN, OUT lives BOOLEAN)
SQL SECURITY INVOKER
BEGIN
  SELECT EXISTS (SELECT 1 FROM fencelock_waiter q JOIN fencelock_client c ON c.client = q.client
    WHERE q.space = p_space AND q.name = p_name AND q.ticket < p_ticket AND (NOT alone OR q.claim IN ('m', 'w'))
      AND c.ends > t AND c.ends < t + 10000000 AND {felt}) INTO lives;
END
//
-- How many permits those want who live, and wait in front of this ticket.
CREATE PROCEDURE fencelock_taken_in_front(IN p_space VARBINARY(512), IN p_name VARBINARY(512), IN t BIGINT, IN p_ticket BIGINT, OUT taken BIGINT)
SQL SECURITY INVOKER
BEGIN
  SELECT COALESCE(SUM(q.take), 0) INTO taken FROM fencelock_waiter q JOIN fencelock_client c ON c.client = q.client
    WHERE q.space = p_space AND q.name = p_name AND q.ticket < p_ticket AND c.ends > t AND c.ends < t + 10000000 AND {felt};
END
//
-- Whether this claim fits in together with all who wait in front of its ticket: no one of them wants it alone, and there is room for all.
-- All who wait for a lock want the same kind of it: with readers there is always room, and permits add up. `settled`: under the lock's row,
-- after what is over has gone.
CREATE PROCEDURE fencelock_fits(IN p_space VARBINARY(512), IN p_name VARBINARY(512), IN t BIGINT, IN settled BOOLEAN, IN l_kind VARBINARY(16), IN l_size BIGINT, IN l_hold BINARY(16), IN l_ends BIGINT, IN p_ticket BIGINT, IN p_claim VARBINARY(1), IN p_take BIGINT, OUT fits BOOLEAN)
SQL SECURITY INVOKER
fitting: BEGIN
  DECLARE v_in_front, v_lives BOOLEAN;
  DECLARE v_held, v_ahead BIGINT DEFAULT 0;
  DECLARE v_ticket, v_mine BIGINT;
  SET fits = FALSE;
  IF l_hold IS NOT NULL AND l_ends > t THEN
    LEAVE fitting;
  END IF;
  -- Mostly nobody is, and there is nobody to ask for.
  SELECT EXISTS (SELECT 1 FROM fencelock_waiter q WHERE q.space = p_space AND q.name = p_name AND q.ticket < p_ticket) INTO v_in_front;
  IF v_in_front AND settled THEN
    -- Those in front who are dead have no place any more. One who is silent for a moment keeps his, and is passed: also when the server
    -- itself stood still for some seconds.
    burying: LOOP
      SET v_ticket = NULL;
      SELECT q.ticket INTO v_ticket
        FROM fencelock_waiter q LEFT JOIN fencelock_client c ON c.client = q.client
        WHERE q.space = p_space AND q.name = p_name AND q.ticket < p_ticket AND (c.client IS NULL OR c.ends < t - 30000000)
        ORDER BY q.ticket LIMIT 1;
      IF v_ticket IS NULL THEN
        LEAVE burying;
      END IF;
      SET v_mine = NULL;
      SELECT q.ticket INTO v_mine FROM fencelock_waiter q
        WHERE q.space = p_space AND q.name = p_name AND q.ticket = v_ticket FOR UPDATE SKIP LOCKED;
      IF v_mine IS NULL THEN
        LEAVE burying;
      END IF;
      DELETE FROM fencelock_waiter WHERE space = p_space AND name = p_name AND ticket = v_ticket;
    END LOOP;
  END IF;
  IF l_kind IN ('rw_lock', 'semaphore') THEN
    SELECT COALESCE(SUM(h.take), 0) INTO v_held FROM fencelock_holder h
      WHERE h.space = p_space AND h.name = p_name AND (settled OR h.ends > t);
  END IF;
  IF p_claim IN ('m', 'w') THEN
    SET fits = v_held = 0;
    IF fits AND v_in_front THEN
      CALL fencelock_in_front(p_space, p_name, t, p_ticket, FALSE, v_lives);
      SET fits = NOT v_lives;
    END IF;
    LEAVE fitting;
  END IF;
  IF p_claim = 'p' AND (l_size IS NULL OR v_held + p_take > l_size) THEN
    LEAVE fitting;
  END IF;
  IF NOT v_in_front THEN
    SET fits = TRUE;
    LEAVE fitting;
  END IF;
  CALL fencelock_in_front(p_space, p_name, t, p_ticket, TRUE, v_lives);
  IF v_lives THEN
    LEAVE fitting;
  END IF;
  IF p_claim = 'p' THEN
    CALL fencelock_taken_in_front(p_space, p_name, t, p_ticket, v_ahead);
    SET fits = v_held + v_ahead + p_take <= l_size;
  ELSE
    SET fits = TRUE;
  END IF;
END
//
-- Somebody has it or wants it as what it is, so it cannot become anything else (SAFETY K1).
CREATE PROCEDURE fencelock_lives(IN p_space VARBINARY(512), IN p_name VARBINARY(512), IN t BIGINT, IN settled BOOLEAN, IN l_hold BINARY(16), IN l_ends BIGINT, OUT lives BOOLEAN)
SQL SECURITY INVOKER
BEGIN
  SELECT COALESCE(l_hold IS NOT NULL AND l_ends > t, FALSE)
    OR EXISTS (SELECT 1 FROM fencelock_holder h WHERE h.space = p_space AND h.name = p_name AND (settled OR h.ends > t))
    OR EXISTS (SELECT 1 FROM fencelock_waiter q JOIN fencelock_client c ON c.client = q.client
      WHERE q.space = p_space AND q.name = p_name AND c.ends > t AND c.ends < t + 10000000)
    OR EXISTS (SELECT 1 FROM fencelock_cell v WHERE v.space = p_space AND v.name = p_name AND v.value IS NOT NULL)
    OR EXISTS (SELECT 1 FROM fencelock_lock l WHERE l.space = p_space AND l.name = p_name AND l.kind = 'session'
      AND (l.until > t AND l.since <= t OR IS_USED_LOCK(COALESCE(l.named, 'fencelock.')) IS NOT NULL)) INTO lives;
END
//
-- Why this claim has to go away or to wait; NULL: it need not. Whoever tries passes nobody who waits.
CREATE PROCEDURE fencelock_refusal(IN p_space VARBINARY(512), IN p_name VARBINARY(512), IN t BIGINT, IN settled BOOLEAN, IN l_kind VARBINARY(16), IN l_size BIGINT, IN l_hold BINARY(16), IN l_ends BIGINT, IN p_kind VARBINARY(16), IN p_claim VARBINARY(1), IN p_take BIGINT, IN p_size BIGINT, IN p_ticket BIGINT, OUT refused VARBINARY(8))
SQL SECURITY INVOKER
refusing: BEGIN
  DECLARE v_yes BOOLEAN;
  DECLARE v_same BOOLEAN DEFAULT TRUE;
  SET refused = NULL;
  IF l_kind = p_kind AND p_size > 0 AND l_size <> p_size THEN
    SET refused = 'size';
    LEAVE refusing;
  END IF;
  IF l_kind <> p_kind THEN
    CALL fencelock_lives(p_space, p_name, t, settled, l_hold, l_ends, v_yes);
    -- Without the row's lock it may have become another kind since that was read.
    IF v_yes AND NOT settled THEN
      SELECT EXISTS (SELECT 1 FROM fencelock_lock l WHERE l.space = p_space AND l.name = p_name AND l.kind = l_kind) INTO v_same;
    END IF;
    IF v_yes AND v_same THEN
      SET refused = 'kind';
      LEAVE refusing;
    END IF;
    IF v_yes THEN
      LEAVE refusing;
    END IF;
  END IF;
  CALL fencelock_fits(p_space, p_name, t, settled, p_kind, NULLIF(p_size, 0), l_hold, l_ends, p_ticket, p_claim, p_take, v_yes);
  IF NOT v_yes THEN
    SET refused = 'busy';
  END IF;
END
//
-- A token that was told is the highest of all (SAFETY T1). A floor above both what is stored and the clock by a day is nobody's.
CREATE PROCEDURE fencelock_give(IN p_space VARBINARY(512), IN p_name VARBINARY(512), IN t BIGINT, IN l_fence BIGINT, IN p_hold BINARY(16), IN p_kind VARBINARY(16), IN p_claim VARBINARY(1), IN p_take BIGINT, IN p_size BIGINT, IN p_ttl BIGINT, IN p_floor BIGINT, IN p_who BLOB, OUT number BIGINT)
SQL SECURITY INVOKER
BEGIN
  IF p_floor > l_fence AND p_floor > t + 86400000000 THEN
    SET p_floor = 0;
  END IF;
  SET number = GREATEST(l_fence + 1, t, p_floor + 1);
  IF p_claim IN ('m', 'w') THEN
    UPDATE fencelock_lock SET kind = p_kind, fence = number, hold = p_hold, ttl = p_ttl, who = p_who, ends = t + p_ttl, since = t
      WHERE space = p_space AND name = p_name;
  ELSE
    UPDATE fencelock_lock SET kind = p_kind, size = NULLIF(p_size, 0), fence = number, hold = NULL
      WHERE space = p_space AND name = p_name;
    INSERT INTO fencelock_holder (space, name, hold, claim, take, token, ttl, ends, since, who)
      VALUES (p_space, p_name, p_hold, p_claim, p_take, number, p_ttl, t + p_ttl, t, p_who);
  END IF;
END
//
-- This very attempt's grant, if there is one: it has its full ttl again, in this same step (SAFETY G1). NULL: there is none.
CREATE PROCEDURE fencelock_find(IN p_space VARBINARY(512), IN p_name VARBINARY(512), IN t BIGINT, IN l_kind VARBINARY(16), IN l_fence BIGINT, IN l_hold BINARY(16), IN l_ends BIGINT, IN p_hold BINARY(16), IN p_ttl BIGINT, OUT number BIGINT)
SQL SECURITY INVOKER
BEGIN
  SET number = NULL;
  IF l_hold = p_hold AND l_ends > t THEN
    UPDATE fencelock_lock SET ttl = GREATEST(ttl, p_ttl), ends = GREATEST(ends, t + p_ttl) WHERE space = p_space AND name = p_name;
    SET number = l_fence;
  ELSEIF l_kind IN ('rw_lock', 'semaphore') THEN
    SELECT h.token INTO number FROM fencelock_holder h
      WHERE h.space = p_space AND h.name = p_name AND h.hold = p_hold AND h.ends > t;
    IF number IS NOT NULL THEN
      UPDATE fencelock_holder SET ttl = GREATEST(ttl, p_ttl), ends = GREATEST(ends, t + p_ttl)
        WHERE space = p_space AND name = p_name AND hold = p_hold AND ends > t;
    END IF;
  END IF;
END
//
