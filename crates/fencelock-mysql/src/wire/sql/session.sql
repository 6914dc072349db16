-- Holds that live with a session of the server: named locks. The named lock alone says who holds; what is written beside it gives tokens,
-- and names for people. A name is one strategy's at a time, so two that differ do not both get it.

-- A session of ours has the named lock of its pulse for as long as it lives: whoever finds that with it finds this very session, and none
-- that had its number later.
CREATE PROCEDURE fencelock_live(IN p_bearer BINARY(16), IN p_silent BIGINT) SQL SECURITY INVOKER
BEGIN
  CALL fencelock_ready();
  -- For so long, in seconds, it may say nothing (SAFETY E3); in the midst of a packet, too.
  IF @@session.wait_timeout <> p_silent THEN
    SET SESSION wait_timeout = p_silent, net_read_timeout = p_silent, net_write_timeout = p_silent;
  END IF;
  SELECT IF(IS_USED_LOCK(CONCAT('fencelock.', HEX(p_bearer))) <=> CONNECTION_ID(), 'done', 'gone') AS code,
    CONNECTION_ID() AS number, @@session.wait_timeout AS rest;
  SELECT 'asked' AS code, a.hold FROM fencelock_asked a WHERE a.bearer = p_bearer;
END
//
-- Which session has this pulse, and who asks: at a server that takes writes.
CREATE PROCEDURE fencelock_feel(IN p_bearer BINARY(16)) SQL SECURITY INVOKER
BEGIN
  CALL fencelock_ready();
  SELECT IS_USED_LOCK(CONCAT('fencelock.', HEX(p_bearer))), CONNECTION_ID();
END
//
-- It is counted for each time that it was taken.
CREATE PROCEDURE fencelock_unlock(IN p_lock VARBINARY(64), OUT freed BOOLEAN) SQL SECURITY INVOKER
BEGIN
  SET freed = FALSE;
  WHILE RELEASE_LOCK(p_lock) <=> 1 DO
    SET freed = TRUE;
  END WHILE;
END
//
-- Who holds, as it was written; then who waits, in the order in which they came. How long a session has been silent is not asked: MariaDB
-- 10.11 ends with a signal where procedures of several sessions look into the list of processes at once.
CREATE PROCEDURE fencelock_bearers(IN p_space VARBINARY(512), IN p_name VARBINARY(512), IN t BIGINT) SQL SECURITY INVOKER
BEGIN
  SELECT 'holder' AS code, l.hold, 'm' AS claim, 1 AS take, l.fence AS token, l.who, t - l.since AS held, l.ttl AS rest
    FROM fencelock_lock l WHERE l.space = p_space AND l.name = p_name AND l.kind = 'session' AND l.hold IS NOT NULL
      AND IS_USED_LOCK(COALESCE(l.named, 'fencelock.')) = l.pid;
  SELECT 'waiter' AS code, b.hold, 'm' AS claim, 1 AS take, b.who, t - b.since AS held
    FROM fencelock_bearer b WHERE b.space = p_space AND b.name = p_name
      AND IS_USED_LOCK(CONCAT('fencelock.', HEX(b.bearer))) = b.pid ORDER BY b.since;
END
//
-- Why it is not to be had now. Of a session that waits: how many came before it; 'gone': it does not wait.
CREATE PROCEDURE fencelock_look(IN p_space VARBINARY(512), IN p_name VARBINARY(512), IN p_lock VARBINARY(64), IN p_bearer BINARY(16))
SQL SECURITY INVOKER
BEGIN
  DECLARE v_hold BINARY(16);
  DECLARE v_token, v_held, v_ttl, v_since, v_ahead BIGINT;
  DECLARE v_who BLOB;
  DECLARE t BIGINT DEFAULT {now};
  SELECT l.hold, l.fence, t - l.since, l.ttl, l.who INTO v_hold, v_token, v_held, v_ttl, v_who FROM fencelock_lock l
    WHERE l.space = p_space AND l.name = p_name AND l.kind = 'session' AND l.named = p_lock AND IS_USED_LOCK(p_lock) = l.pid;
  SELECT b.since INTO v_since FROM fencelock_bearer b WHERE b.bearer = p_bearer;
  SELECT COUNT(*) INTO v_ahead FROM fencelock_bearer b
    WHERE b.space = p_space AND b.name = p_name AND (v_since IS NULL OR b.since < v_since)
      AND IS_USED_LOCK(CONCAT('fencelock.', HEX(b.bearer))) = b.pid;
  SELECT IF(p_bearer IS NOT NULL AND v_since IS NULL, 'gone', 'busy') AS code, t AS now, v_ahead AS ahead, v_hold AS hold,
    'm' AS claim, 1 AS take, v_token AS token, v_who AS who, v_held AS held, v_ttl AS rest;
END
//
-- This session has the named lock: it takes a token, and says who it is. `number`: the token, or how long it is reserved.
CREATE PROCEDURE fencelock_seize(IN p_space VARBINARY(512), IN p_name VARBINARY(512), IN p_lock VARBINARY(64), IN p_bearer BINARY(16), IN p_hold BINARY(16), IN p_ttl BIGINT, IN p_floor BIGINT, IN p_least BIGINT, IN p_who BLOB, IN p_waited BOOLEAN, OUT v_code VARBINARY(8), OUT v_kind VARBINARY(32), OUT number BIGINT)
SQL SECURITY INVOKER
seizing: BEGIN
  DECLARE l_found, v_there, v_lives BOOLEAN DEFAULT FALSE;
  DECLARE l_kind VARBINARY(16);
  DECLARE l_hold BINARY(16);
  DECLARE l_named VARBINARY(64);
  DECLARE l_fence, l_ttl, l_ends, l_since, l_until, t BIGINT;
  DECLARE v_none INT;
  SELECT EXISTS (SELECT 1 FROM fencelock_lock l WHERE l.space = p_space AND l.name = p_name) INTO v_there;
  IF NOT v_there THEN
    CALL fencelock_create(p_space, p_name);
  END IF;
  CALL fencelock_begin();
  -- As in `fencelock_take`.
  {tables};
  SELECT TRUE, l.kind, l.fence, l.hold, l.ttl, l.ends, l.since, l.named, l.until
    INTO l_found, l_kind, l_fence, l_hold, l_ttl, l_ends, l_since, l_named, l_until
    FROM fencelock_lock l WHERE l.space = p_space AND l.name = p_name FOR UPDATE SKIP LOCKED;
  SET t = {now};
  IF NOT l_found THEN
    SET v_code = 'locked';
  ELSEIF l_kind = 'session' THEN
    IF l_named <> p_lock AND IS_USED_LOCK(l_named) IS NOT NULL THEN
      SET v_code = 'layout', v_kind = 'session with other keys';
    ELSEIF l_until > t AND l_hold <> p_hold AND l_since <= t THEN
      -- Its holder is gone, and it is not free before its time. (Where the clock was set back since nobody knows when that is.)
      SET v_code = 'reserved', number = l_until - t;
    END IF;
  ELSE
    CALL fencelock_settle(p_space, p_name, t, l_kind, l_hold, l_ttl, l_ends);
    CALL fencelock_lives(p_space, p_name, t, TRUE, l_hold, l_ends, v_lives);
    IF v_lives THEN
      SET v_code = IF(l_kind = 'cell', 'kind', 'layout'), v_kind = IF(l_kind = 'cell', l_kind, 'lease');
    END IF;
  END IF;
  IF v_code IS NOT NULL THEN
    COMMIT;
    LEAVE seizing;
  END IF;
  IF NOT (l_kind <=> 'session') THEN
    -- Nobody who lives waits for a lease of it. *Invariant (SAFETY E1):* who has been silent and comes back finds no place here.
    DELETE FROM fencelock_waiter WHERE space = p_space AND name = p_name;
  END IF;
  IF p_floor > l_fence AND p_floor > t + 86400000000 THEN
    SET p_floor = 0;
  END IF;
  SET v_code = 'done', number = GREATEST(l_fence + 1, t, p_floor + 1);
  UPDATE fencelock_lock SET kind = 'session', size = NULL, fence = number, hold = p_hold, ttl = p_ttl, ends = 0, since = t, who = p_who,
      named = p_lock, bearer = p_bearer, pid = CONNECTION_ID(), until = IF(p_least > 0, t + p_least, 0)
    WHERE space = p_space AND name = p_name;
  IF p_waited THEN
    DELETE FROM fencelock_bearer WHERE bearer = p_bearer;
  END IF;
  COMMIT;
END
//
-- Takes it if it is free. Whatever goes wrong on the way leaves this session without it, or is an error that ends the session. Another hold
-- of this very session has it, too: the server would count it once more.
CREATE PROCEDURE fencelock_bear(IN p_space VARBINARY(512), IN p_name VARBINARY(512), IN p_lock VARBINARY(64), IN p_bearer BINARY(16), IN p_hold BINARY(16), IN p_ttl BIGINT, IN p_floor BIGINT, IN p_least BIGINT, IN p_who BLOB)
SQL SECURITY INVOKER
bearing: BEGIN
  DECLARE v_got, v_number BIGINT DEFAULT 0;
  DECLARE v_freed BOOLEAN;
  DECLARE v_code VARBINARY(8);
  DECLARE v_kind VARBINARY(32);
  CALL fencelock_ready();
  IF IS_USED_LOCK(p_lock) IS NULL THEN
    SET v_got = GET_LOCK(p_lock, 0);
  END IF;
  IF v_got IS NULL THEN
    SIGNAL SQLSTATE '70100' SET MYSQL_ERRNO = 1317, MESSAGE_TEXT = 'GET_LOCK was broken off';
  ELSEIF v_got = 0 THEN
    CALL fencelock_look(p_space, p_name, p_lock, NULL);
    LEAVE bearing;
  END IF;
  BEGIN
    DECLARE EXIT HANDLER FOR 1205, 1213
    BEGIN
      ROLLBACK;
      SET v_code = 'locked';
    END;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
      ROLLBACK;
      CALL fencelock_unlock(p_lock, v_freed);
      RESIGNAL;
    END;
    CALL fencelock_seize(p_space, p_name, p_lock, p_bearer, p_hold, p_ttl, p_floor, p_least, p_who, FALSE, v_code, v_kind, v_number);
  END;
  IF NOT (v_code <=> 'done') THEN
    CALL fencelock_unlock(p_lock, v_freed);
  END IF;
  SELECT v_code AS code, v_number AS number, v_kind AS kind, {now} AS now;
END
//
-- The same, and waits for it in the server's own queue, for so many seconds, in a session that bears nothing else. Whoever asks again goes
-- on where he was: what is his already is not waited for.
CREATE PROCEDURE fencelock_await(IN p_space VARBINARY(512), IN p_name VARBINARY(512), IN p_lock VARBINARY(64), IN p_bearer BINARY(16), IN p_hold BINARY(16), IN p_ttl BIGINT, IN p_floor BIGINT, IN p_least BIGINT, IN p_who BLOB, IN p_long BIGINT)
SQL SECURITY INVOKER
awaiting: BEGIN
  DECLARE v_got, v_number BIGINT DEFAULT 1;
  DECLARE v_code VARBINARY(8);
  DECLARE v_kind VARBINARY(32);
  DECLARE EXIT HANDLER FOR 1205, 1213
  BEGIN
    ROLLBACK;
    SELECT 'locked' AS code, {now} AS now;
  END;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    ROLLBACK;
    RESIGNAL;
  END;
  CALL fencelock_ready();
  IF NOT (IS_USED_LOCK(p_lock) <=> CONNECTION_ID()) THEN
    INSERT INTO fencelock_bearer (bearer, pid, space, name, hold, since, who)
      VALUES (p_bearer, CONNECTION_ID(), p_space, p_name, p_hold, {now}, p_who)
      ON DUPLICATE KEY UPDATE space = p_space, name = p_name, hold = p_hold, since = {now}, who = p_who;
    SET v_got = GET_LOCK(p_lock, p_long);
  END IF;
  IF v_got IS NULL THEN
    SIGNAL SQLSTATE '70100' SET MYSQL_ERRNO = 1317, MESSAGE_TEXT = 'GET_LOCK was broken off';
  ELSEIF v_got = 0 THEN
    CALL fencelock_look(p_space, p_name, p_lock, NULL);
    LEAVE awaiting;
  END IF;
  CALL fencelock_seize(p_space, p_name, p_lock, p_bearer, p_hold, p_ttl, p_floor, p_least, p_who, TRUE, v_code, v_kind, v_number);
  SELECT v_code AS code, v_number AS number, v_kind AS kind, {now} AS now;
END
//
-- Ends the hold of this id in this session, and no other. What was never granted is not there. What is given back is free, also before its
-- time: core has waited for that, or nobody was ever told of it.
CREATE PROCEDURE fencelock_let_go(IN p_space VARBINARY(512), IN p_name VARBINARY(512), IN p_lock VARBINARY(64), IN p_hold BINARY(16))
SQL SECURITY INVOKER
leaving: BEGIN
  DECLARE l_hold BINARY(16);
  DECLARE l_until, v_pid BIGINT;
  DECLARE v_freed BOOLEAN DEFAULT FALSE;
  DECLARE EXIT HANDLER FOR 1205, 1213
  BEGIN
    ROLLBACK;
    SELECT 'locked' AS code;
  END;
  CALL fencelock_ready_to_end();
  SELECT l.hold, l.pid, l.until INTO l_hold, v_pid, l_until FROM fencelock_lock l WHERE l.space = p_space AND l.name = p_name;
  IF l_hold = p_hold AND v_pid = CONNECTION_ID() THEN
    IF l_until > 0 THEN
      CALL fencelock_begin();
      SET l_hold = NULL;
      SELECT l.hold INTO l_hold FROM fencelock_lock l
        WHERE l.space = p_space AND l.name = p_name AND l.hold = p_hold FOR UPDATE SKIP LOCKED;
      UPDATE fencelock_lock SET until = 0 WHERE space = p_space AND name = p_name AND hold = l_hold;
      COMMIT;
      IF l_hold IS NULL THEN
        SELECT 'locked' AS code;
        LEAVE leaving;
      END IF;
    END IF;
    CALL fencelock_unlock(p_lock, v_freed);
  END IF;
  SELECT IF(v_freed, 'done', 'gone') AS code, {now} AS now;
END
//
-- The session that holds this is asked to let go, and reads that with its next sign of life. 'gone': another one has it; 'never': it is no
-- session's.
CREATE PROCEDURE fencelock_ask(IN p_space VARBINARY(512), IN p_name VARBINARY(512), IN p_token BIGINT) SQL SECURITY INVOKER
BEGIN
  DECLARE v_kind VARBINARY(16);
  DECLARE v_bearer, v_hold BINARY(16);
  DECLARE v_token, v_held, v_ttl BIGINT;
  DECLARE v_who BLOB;
  DECLARE t BIGINT;
  CALL fencelock_ready();
  SET t = {now};
  SELECT l.kind INTO v_kind FROM fencelock_lock l WHERE l.space = p_space AND l.name = p_name;
  SELECT l.bearer, l.hold, l.fence, t - l.since, l.ttl, l.who INTO v_bearer, v_hold, v_token, v_held, v_ttl, v_who FROM fencelock_lock l
    WHERE l.space = p_space AND l.name = p_name AND l.kind = 'session'
      AND IS_USED_LOCK(COALESCE(l.named, 'fencelock.')) = l.pid;
  IF v_token = p_token THEN
    INSERT INTO fencelock_asked (bearer, hold, since) VALUES (v_bearer, v_hold, t) ON DUPLICATE KEY UPDATE since = t;
    SELECT 'asked' AS code, v_bearer AS hold;
  ELSE
    SELECT IF(v_kind = 'session', 'gone', 'never') AS code, v_hold AS hold, 'm' AS claim, 1 AS take, v_token AS token, v_who AS who,
      v_held AS held, v_ttl AS rest;
  END IF;
END
//
-- Ends a session, if it is still there; 'gone' when it is not, and nothing of it. Whose it is, is asked of its pulse.
CREATE PROCEDURE fencelock_bury(IN p_bearer BINARY(16)) SQL SECURITY INVOKER
BEGIN
  DECLARE v_pid BIGINT DEFAULT IS_USED_LOCK(CONCAT('fencelock.', HEX(p_bearer)));
  -- It may have ended meanwhile.
  DECLARE CONTINUE HANDLER FOR 1094 BEGIN END;
  CALL fencelock_ready_to_end();
  IF v_pid IS NULL THEN
    BEGIN
      -- A server that takes no writes keeps what nobody looks at.
      DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END;
      DELETE FROM fencelock_bearer WHERE bearer = p_bearer;
      DELETE FROM fencelock_asked WHERE bearer = p_bearer;
    END;
    SELECT 'gone' AS code;
  ELSE
    KILL v_pid;
    SELECT 'done' AS code;
  END IF;
END
//
-- The same, of one that was asked to let go of this, and has not.
CREATE PROCEDURE fencelock_bury_holder(IN p_space VARBINARY(512), IN p_name VARBINARY(512), IN p_token BIGINT, IN p_bearer BINARY(16))
SQL SECURITY INVOKER
BEGIN
  DECLARE v_is BOOLEAN DEFAULT FALSE;
  CALL fencelock_ready_to_end();
  -- It may be about to have it anew: then this waits for its token.
  SELECT TRUE INTO v_is FROM fencelock_lock l WHERE l.space = p_space AND l.name = p_name AND l.kind = 'session' AND l.fence = p_token
    AND l.bearer = p_bearer AND IS_USED_LOCK(COALESCE(l.named, 'fencelock.')) = l.pid LOCK IN SHARE MODE;
  IF v_is THEN
    CALL fencelock_bury(p_bearer);
  ELSE
    SELECT 'gone' AS code;
  END IF;
END
//
-- What sessions have left that nobody has buried.
CREATE PROCEDURE fencelock_forget_bearers(IN t BIGINT) SQL SECURITY INVOKER
BEGIN
  DECLARE CONTINUE HANDLER FOR 1205, 1213 BEGIN END;
  DELETE FROM fencelock_bearer
    WHERE since < t - 60000000 AND NOT (IS_USED_LOCK(CONCAT('fencelock.', HEX(bearer))) <=> pid);
  DELETE FROM fencelock_asked WHERE since < t - 60000000;
END
//
