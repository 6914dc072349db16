-- Locks that are shared with ShedLock, by its table, as its users make it; and what that has no columns for: the token, and who it is for us.
-- Times are by the server's clock, in UTC (`usingDbTime()`): what is in a column of timestamps is UTC read by the zone of the session that
-- wrote it, and others have the server's own.
CREATE TABLE IF NOT EXISTS shedlock (
  name VARCHAR(64) {letters} NOT NULL,
  lock_until TIMESTAMP(3) NOT NULL,
  locked_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
  locked_by VARCHAR(255) NOT NULL,
  PRIMARY KEY (name)
) ENGINE=InnoDB
//
-- The clock; after it columns are read and written as others do.
CREATE PROCEDURE fencelock_shed_clock(OUT t BIGINT) SQL SECURITY INVOKER
BEGIN
  SET SESSION time_zone = '+00:00';
  SET t = {now};
  SET SESSION time_zone = @@global.time_zone;
END
//
-- A row for each name that one of us has held. It stays, so its tokens go on rising (SAFETY T1). `since`: when the token was given.
CREATE TABLE IF NOT EXISTS fencelock_shed (
  name {name} NOT NULL PRIMARY KEY,
  fence BIGINT NOT NULL,
  since BIGINT NOT NULL,
  hold BINARY(16) NOT NULL,
  who BLOB NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
//
-- Names that are one in that table are one here.
ALTER TABLE fencelock_shed MODIFY name {name} NOT NULL
//
-- Others have no token; in its place stands when they took it, which tells one hold from another, and is above all tokens that we gave
-- before, as many µs as it is later, and below all that we give after it.
CREATE PROCEDURE fencelock_shed_stands(IN l_at BIGINT, IN f_fence BIGINT, IN f_since BIGINT, OUT stands BIGINT) SQL SECURITY INVOKER
BEGIN
  SET stands = GREATEST(l_at, 1, COALESCE(f_fence + 1 + GREATEST(l_at - f_since, 0), 1));
END
//
-- Who holds it, if somebody does.
CREATE PROCEDURE fencelock_shed_tell(IN p_code VARBINARY(8), IN p_name {name}, IN t BIGINT, IN l_until BIGINT, IN l_at BIGINT, IN l_by VARCHAR(255))
SQL SECURITY INVOKER
BEGIN
  DECLARE f_fence, f_since BIGINT;
  DECLARE f_hold BINARY(16);
  DECLARE f_who BLOB;
  IF l_until > t THEN
    SELECT f.fence, f.since, f.hold, f.who INTO f_fence, f_since, f_hold, f_who FROM fencelock_shed f WHERE f.name = p_name;
    IF NOT LEFT(l_by, 42) <=> CONCAT('fencelock ', LOWER(HEX(f_hold))) THEN
      CALL fencelock_shed_stands(l_at, f_fence, f_since, f_fence);
      SET f_hold = UNHEX(MD5(CONCAT(l_by, l_at))),
        f_who = CONVERT(CONCAT(REPLACE(COALESCE(NULLIF(l_by, ''), '-'), ' ', '_'), ' 0 ShedLock') USING utf8mb4);
    END IF;
    SELECT p_code AS code, t AS now, 'm' AS claim, 1 AS take, f_hold AS hold, f_fence AS token, f_who AS who,
      GREATEST(t - l_at, 0) AS held, l_until - t AS rest;
  ELSE
    SELECT p_code AS code, t AS now;
  END IF;
END
//
-- Writes an end. A column may keep no less than a millisecond, so a lease has one more; `p_at`, `p_by`: NULL leaves them as they are.
CREATE PROCEDURE fencelock_shed_write(IN p_name {name}, IN p_until BIGINT, IN p_at BIGINT, IN p_by VARCHAR(255)) SQL SECURITY INVOKER
BEGIN
  UPDATE shedlock SET lock_until = TIMESTAMPADD(MICROSECOND, p_until, TIMESTAMP'1970-01-01 00:00:00'),
      locked_at = COALESCE(TIMESTAMPADD(MICROSECOND, p_at, TIMESTAMP'1970-01-01 00:00:00'), locked_at),
      locked_by = COALESCE(p_by, locked_by)
    WHERE name = p_name;
END
//
-- Claims. It alone creates (SAFETY A2). A try that fails writes nothing and locks nothing.
CREATE PROCEDURE fencelock_shed_acquire(IN p_name {name}, IN p_hold BINARY(16), IN p_ttl BIGINT, IN p_not_after BIGINT, IN p_floor BIGINT, IN p_who BLOB)
SQL SECURITY INVOKER
acquiring: BEGIN
  DECLARE v_none INT;
  DECLARE l_found, v_mine BOOLEAN DEFAULT FALSE;
  DECLARE l_by VARCHAR(255);
  -- Each hold has its own: with a host's name, ShedLock's default, the unlocking of one that is over would end the next one of the same host.
  DECLARE v_by VARCHAR(64) DEFAULT CONCAT('fencelock ', LOWER(HEX(p_hold)));
  DECLARE f_hold BINARY(16);
  DECLARE l_until, l_at, f_fence, f_since, v_stands, v_later, v_number, t BIGINT;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    ROLLBACK;
    RESIGNAL;
  END;
  CALL fencelock_ready();
  CALL fencelock_shed_clock(t);
  IF t > p_not_after THEN
    SELECT 'past' AS code, t AS now;
    LEAVE acquiring;
  END IF;
  SELECT {row} WHERE s.name = p_name;
  IF NOT l_found THEN
    -- It may have waited for the table.
    CALL fencelock_shed_clock(t);
    IF t > p_not_after THEN
      SELECT 'past' AS code, t AS now;
      LEAVE acquiring;
    END IF;
    BEGIN
      DECLARE CONTINUE HANDLER FOR 1062 BEGIN END;
      -- Somebody's transaction has made it and goes on: MariaDB does not wait for that, MySQL for a second (SAFETY E2).
      DECLARE CONTINUE HANDLER FOR 1205 BEGIN END;
      -- Free for anybody: the grant is always the UPDATE. Long since: a column may round up.
      /*M!100300 SET STATEMENT innodb_lock_wait_timeout = 0 FOR */ INSERT INTO shedlock (name, lock_until, locked_at, locked_by)
        SELECT p_name, TIMESTAMP'1970-01-03 00:00:00', n, 'fencelock' FROM (SELECT TIMESTAMPADD(MICROSECOND, t, TIMESTAMP'1970-01-01 00:00:00') AS n) clock;
    END;
  ELSEIF l_until > t AND NOT LEFT(l_by, 42) <=> v_by THEN
    -- It may have waited for the table.
    CALL fencelock_shed_clock(t);
    IF l_until > t THEN
      CALL fencelock_shed_tell('busy', p_name, t, l_until, l_at, l_by);
      LEAVE acquiring;
    END IF;
  END IF;
  CALL fencelock_begin();
  -- Whatever is waited for is waited for now (SAFETY A2).
  SELECT COUNT(*) INTO v_none FROM fencelock_shed WHERE FALSE FOR UPDATE;
  SET l_found = FALSE;
  SELECT {row} WHERE s.name = p_name FOR UPDATE SKIP LOCKED;
  CALL fencelock_shed_clock(t);
  IF NOT l_found THEN
    COMMIT;
    SELECT 'locked' AS code, t AS now;
    LEAVE acquiring;
  END IF;
  SET v_mine = l_until > t AND LEFT(l_by, 42) <=> v_by;
  IF l_until > t AND NOT v_mine THEN
    COMMIT;
    CALL fencelock_shed_tell('busy', p_name, t, l_until, l_at, l_by);
    LEAVE acquiring;
  END IF;
  IF t > p_not_after THEN
    COMMIT;
    SELECT 'past' AS code, t AS now;
    LEAVE acquiring;
  END IF;
  SELECT f.fence, f.since, f.hold INTO f_fence, f_since, f_hold FROM fencelock_shed f WHERE f.name = p_name;
  IF v_mine AND f_hold = p_hold THEN
    SET v_number = f_fence;
  ELSE
    -- Above all that stood for somebody's hold, but for what a clock far ahead has left.
    CALL fencelock_shed_stands(l_at, f_fence, f_since, v_stands);
    SET f_fence = COALESCE(f_fence, 0), v_later = t + 86400000000;
    SET v_number = GREATEST(f_fence + 1, t, IF(p_floor <= GREATEST(f_fence, v_later), p_floor + 1, 0), IF(l_at < v_later, v_stands + 1, 0));
    INSERT INTO fencelock_shed (name, fence, since, hold, who) VALUES (p_name, v_number, t, p_hold, p_who)
      ON DUPLICATE KEY UPDATE fence = v_number, since = t, hold = p_hold, who = p_who;
  END IF;
  -- A late copy takes nothing back of what was extended meanwhile.
  CALL fencelock_shed_write(p_name, GREATEST(IF(v_mine, l_until, 0), t + p_ttl + 1000), IF(v_mine, NULL, t),
    CONCAT(v_by, ' ', LEFT(SUBSTRING_INDEX(CONVERT(p_who USING utf8mb4), ' ', 1), 200)));
  COMMIT;
  SELECT 'done' AS code, v_number AS number, t AS now;
END
//
-- Of each a letter: e it is extended, g it is gone, u somebody keeps its row. They come as bytes: of each the length of its name, its name, its
-- id, its token and its ttl.
CREATE PROCEDURE fencelock_shed_renew(IN p_all LONGBLOB) SQL SECURITY INVOKER
BEGIN
  DECLARE v_at INT DEFAULT 1;
  DECLARE v_length INT;
  DECLARE v_name {name};
  DECLARE v_hold BINARY(16);
  DECLARE v_there, v_is, l_found BOOLEAN;
  DECLARE l_by VARCHAR(255);
  DECLARE v_token, v_ttl, l_until, l_at, t BIGINT;
  DECLARE answers VARBINARY(4096) DEFAULT '';
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    ROLLBACK;
    RESIGNAL;
  END;
  CALL fencelock_ready();
  CALL fencelock_shed_clock(t);
  CALL fencelock_begin();
  WHILE v_at < LENGTH(p_all) DO
    SET v_length = CONV(HEX(SUBSTRING(p_all, v_at, 2)), 16, 10);
    SET v_name = CONVERT(SUBSTRING(p_all, v_at + 2, v_length) USING utf8mb4);
    SET v_hold = SUBSTRING(p_all, v_at + 2 + v_length, 16);
    SET v_token = CONV(HEX(SUBSTRING(p_all, v_at + 18 + v_length, 8)), 16, 10);
    SET v_ttl = CONV(HEX(SUBSTRING(p_all, v_at + 26 + v_length, 8)), 16, 10);
    SET v_at = v_at + 34 + v_length;
    SET l_found = FALSE;
    SELECT EXISTS (SELECT 1 FROM shedlock s WHERE s.name = v_name) INTO v_there;
    SELECT {row} WHERE s.name = v_name FOR UPDATE SKIP LOCKED;
    CALL fencelock_shed_clock(t);
    SELECT EXISTS (SELECT 1 FROM fencelock_shed f WHERE f.name = v_name AND f.hold = v_hold AND f.fence = v_token) INTO v_is;
    IF v_there AND NOT l_found THEN
      SET answers = CONCAT(answers, 'u');
    ELSEIF v_is AND l_found AND l_until > t AND LEFT(l_by, 42) = CONCAT('fencelock ', LOWER(HEX(v_hold))) THEN
      CALL fencelock_shed_write(v_name, GREATEST(l_until, t + v_ttl + 1000), NULL, NULL);
      SET answers = CONCAT(answers, 'e');
    ELSE
      SET answers = CONCAT(answers, 'g');
    END IF;
  END WHILE;
  COMMIT;
  SELECT answers AS answers;
END
//
-- Ends this hold, with a token only if it is that one.
CREATE PROCEDURE fencelock_shed_release(IN p_name {name}, IN p_hold BINARY(16), IN p_token BIGINT) SQL SECURITY INVOKER
CALL fencelock_shed_end(p_name, p_hold, p_token)
//
-- Breaks the hold of this token, or of what stands in its place, and no other. Whoever had it finds another name there, and knows.
CREATE PROCEDURE fencelock_shed_force(IN p_name {name}, IN p_token BIGINT) SQL SECURITY INVOKER
CALL fencelock_shed_end(p_name, NULL, p_token)
//
CREATE PROCEDURE fencelock_shed_end(IN p_name {name}, IN p_hold BINARY(16), IN p_token BIGINT) SQL SECURITY INVOKER
ending: BEGIN
  DECLARE v_there, l_found, v_is BOOLEAN DEFAULT FALSE;
  DECLARE l_by VARCHAR(255);
  DECLARE v_hold BINARY(16);
  DECLARE l_until, l_at, v_token, v_since, t BIGINT;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    ROLLBACK;
    RESIGNAL;
  END;
  CALL fencelock_ready();
  CALL fencelock_shed_clock(t);
  SELECT EXISTS (SELECT 1 FROM shedlock s WHERE s.name = p_name) INTO v_there;
  CALL fencelock_begin();
  SELECT {row} WHERE s.name = p_name FOR UPDATE SKIP LOCKED;
  CALL fencelock_shed_clock(t);
  IF v_there AND NOT l_found THEN
    COMMIT;
    SELECT 'locked' AS code, t AS now;
    LEAVE ending;
  END IF;
  SELECT f.hold, f.fence, f.since INTO v_hold, v_token, v_since FROM fencelock_shed f WHERE f.name = p_name;
  IF NOT LEFT(l_by, 42) <=> CONCAT('fencelock ', LOWER(HEX(v_hold))) THEN
    CALL fencelock_shed_stands(l_at, v_token, v_since, v_token);
    SET v_hold = NULL;
  END IF;
  SET v_is = COALESCE(l_until > t AND (p_token IS NULL OR p_token = v_token)
    AND (p_hold IS NULL OR p_hold = v_hold), FALSE);
  IF v_is THEN
    -- Not now: a column may round up, and the clock may be set back.
    CALL fencelock_shed_write(p_name, LEAST(l_at, t), NULL, IF(p_hold IS NULL, 'fencelock release', NULL));
  END IF;
  COMMIT;
  IF v_is THEN
    SELECT 'done' AS code, t AS now;
  ELSE
    CALL fencelock_shed_tell('gone', p_name, t, l_until, l_at, l_by);
  END IF;
END
//
CREATE PROCEDURE fencelock_shed_inspect(IN p_name {name}) SQL SECURITY INVOKER
BEGIN
  DECLARE l_found BOOLEAN DEFAULT FALSE;
  DECLARE l_by VARCHAR(255);
  DECLARE l_until, l_at, t BIGINT;
  CALL fencelock_ready();
  CALL fencelock_shed_clock(t);
  SELECT 'lock' AS code, 'mutex' AS kind, (SELECT f.fence FROM fencelock_shed f WHERE f.name = p_name) AS number;
  SELECT {row} WHERE s.name = p_name;
  IF l_until > t THEN
    CALL fencelock_shed_tell('holder', p_name, t, l_until, l_at, l_by);
  END IF;
END
//
-- In the table's own order, after one.
CREATE PROCEDURE fencelock_shed_list(IN p_prefix {name}, IN p_after {name}, IN p_limit BIGINT) SQL SECURITY INVOKER
BEGIN
  DECLARE t BIGINT;
  CALL fencelock_ready();
  CALL fencelock_shed_clock(t);
  SELECT s.name FROM shedlock s
    WHERE LEFT(s.name, CHAR_LENGTH(p_prefix)) = p_prefix AND (p_after IS NULL OR s.name > p_after) AND CHAR_LENGTH(s.name) <= 512
      AND COALESCE(s.lock_until > TIMESTAMPADD(MICROSECOND, t, TIMESTAMP'1970-01-01 00:00:00'), TRUE)
    ORDER BY s.name LIMIT p_limit;
END
//
-- It comes last: where a version is, all is.
UPDATE fencelock_meta SET shed = {version}, sort = '{sort}' WHERE one = 1
//
