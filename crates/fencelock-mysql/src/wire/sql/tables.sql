-- One row for each lock, held or not; it stays when the lock is released (SAFETY T1), so its tokens go on rising. Names are bytes: case
-- and blanks at the end count. Times are µs since 1970. No index on an end: a renewal changes no index.
CREATE TABLE IF NOT EXISTS fencelock_meta (
  one TINYINT NOT NULL PRIMARY KEY,
  version INT NOT NULL,
  store BINARY(16) NOT NULL,
  floor BIGINT NOT NULL DEFAULT 0,
  -- Of what comes to it for locks that are shared with ShedLock, if that is there: which version, and by which collation it compares.
  shed INT,
  sort VARBINARY(64)
) ENGINE=InnoDB
//
CREATE TABLE IF NOT EXISTS fencelock_lock (
  space VARBINARY(512) NOT NULL,
  name VARBINARY(512) NOT NULL,
  kind VARBINARY(16),
  size BIGINT,
  fence BIGINT NOT NULL,
  hold BINARY(16),
  ttl BIGINT,
  ends BIGINT,
  since BIGINT,
  who BLOB,
  -- Of a session's hold (its kind is 'session', and `ends` is 0): its named lock, who has that, and until when it is free for nobody else.
  named VARBINARY(64),
  bearer BINARY(16),
  pid BIGINT,
  until BIGINT,
  PRIMARY KEY (space, name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
//
CREATE TABLE IF NOT EXISTS fencelock_holder (
  space VARBINARY(512) NOT NULL,
  name VARBINARY(512) NOT NULL,
  hold BINARY(16) NOT NULL,
  claim VARBINARY(1) NOT NULL,
  take BIGINT NOT NULL,
  token BIGINT NOT NULL,
  ttl BIGINT NOT NULL,
  ends BIGINT NOT NULL,
  since BIGINT NOT NULL,
  who BLOB NOT NULL,
  PRIMARY KEY (space, name, hold)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
//
CREATE TABLE IF NOT EXISTS fencelock_waiter (
  space VARBINARY(512) NOT NULL,
  name VARBINARY(512) NOT NULL,
  ticket BIGINT NOT NULL,
  hold BINARY(16) NOT NULL,
  claim VARBINARY(1) NOT NULL,
  take BIGINT NOT NULL,
  ttl BIGINT NOT NULL,
  floor BIGINT NOT NULL,
  client BINARY(16) NOT NULL,
  since BIGINT NOT NULL,
  who BLOB NOT NULL,
  PRIMARY KEY (space, name, ticket),
  KEY fencelock_waiter_hold (hold),
  KEY fencelock_waiter_client (client)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
//
-- A session that waits: it waits for one lock.
CREATE TABLE IF NOT EXISTS fencelock_bearer (
  bearer BINARY(16) NOT NULL PRIMARY KEY,
  pid BIGINT NOT NULL,
  space VARBINARY(512) NOT NULL,
  name VARBINARY(512) NOT NULL,
  hold BINARY(16) NOT NULL,
  since BIGINT NOT NULL,
  who BLOB NOT NULL,
  KEY fencelock_bearer_name (space, name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
//
-- What a session is asked to let go.
CREATE TABLE IF NOT EXISTS fencelock_asked (
  bearer BINARY(16) NOT NULL,
  hold BINARY(16) NOT NULL,
  since BIGINT NOT NULL,
  PRIMARY KEY (bearer, hold)
) ENGINE=InnoDB
//
CREATE TABLE IF NOT EXISTS fencelock_client (
  client BINARY(16) NOT NULL PRIMARY KEY,
  ends BIGINT NOT NULL,
  pulse BIGINT NOT NULL
) ENGINE=InnoDB
//
CREATE TABLE IF NOT EXISTS fencelock_cell (
  space VARBINARY(512) NOT NULL,
  name VARBINARY(512) NOT NULL,
  version BIGINT NOT NULL,
  value LONGBLOB,
  PRIMARY KEY (space, name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
//
CREATE TABLE IF NOT EXISTS fencelock_write (
  space VARBINARY(512) NOT NULL,
  name VARBINARY(512) NOT NULL,
  nonce BINARY(16) NOT NULL,
  version BIGINT NOT NULL,
  written BIGINT NOT NULL,
  PRIMARY KEY (space, name, nonce)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
//
