-- One row for each lock, held or not; it stays when the lock is released (SAFETY T1), so its tokens go on rising. No index on an end: a
-- renewal changes no index, and stays within its page.
CREATE TABLE {s}.fencelock_meta (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  version integer NOT NULL,
  store uuid NOT NULL,
  floor bigint NOT NULL DEFAULT 0,
  -- Of what comes to it for locks that are shared with ShedLock, if that is there.
  shed integer
);
CREATE TABLE {s}.fencelock_lock (
  space text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  kind text,
  size bigint,
  fence bigint NOT NULL,
  hold uuid,
  ttl bigint,
  until timestamptz,
  since timestamptz,
  who text,
  -- Of a session's hold: its advisory lock, and the server's process.
  key bigint,
  pair boolean,
  pid integer,
  PRIMARY KEY (space, name)
) WITH (fillfactor = 70);
-- The token is a key, so that the `FOR KEY SHARE` of a guarded transaction keeps a takeover waiting, and a renewal not. A grant leaves a dead entry
-- here until the next vacuum, and whoever looked for a name would read all of them: so it is of another collation than the names, which sorts
-- them alike, and no plan finds a name by it.
CREATE UNIQUE INDEX fencelock_lock_fence ON {s}.fencelock_lock (fence, space COLLATE "POSIX", name COLLATE "POSIX");
CREATE TABLE {s}.fencelock_holder (
  space text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  hold uuid NOT NULL,
  claim text NOT NULL,
  take bigint NOT NULL,
  token bigint NOT NULL,
  ttl bigint NOT NULL,
  until timestamptz NOT NULL,
  since timestamptz NOT NULL,
  who text NOT NULL,
  PRIMARY KEY (space, name, hold)
) WITH (fillfactor = 70);
CREATE TABLE {s}.fencelock_waiter (
  space text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  ticket bigint GENERATED ALWAYS AS IDENTITY,
  hold uuid NOT NULL,
  claim text NOT NULL,
  take bigint NOT NULL,
  ttl bigint NOT NULL,
  floor bigint NOT NULL,
  client uuid NOT NULL,
  since timestamptz NOT NULL,
  who text NOT NULL,
  PRIMARY KEY (space, name, ticket),
  UNIQUE (space, name, hold)
);
CREATE INDEX fencelock_waiter_client ON {s}.fencelock_waiter (client);
CREATE TABLE {s}.fencelock_bearer (
  space text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  hold uuid NOT NULL,
  claim text NOT NULL,
  pid integer NOT NULL,
  token bigint,
  ttl bigint NOT NULL,
  since timestamptz NOT NULL,
  who text NOT NULL,
  PRIMARY KEY (space, name, hold)
);
CREATE TABLE {s}.fencelock_client (
  client uuid PRIMARY KEY,
  until timestamptz NOT NULL,
  pid integer
) WITH (fillfactor = 50);
CREATE TABLE {s}.fencelock_cell (
  space text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  version bigint NOT NULL,
  value bytea,
  PRIMARY KEY (space, name)
);
CREATE TABLE {s}.fencelock_write (
  space text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  nonce uuid NOT NULL,
  version bigint NOT NULL,
  at timestamptz NOT NULL,
  PRIMARY KEY (space, name, nonce)
);
-- What a function on one lock answers.
CREATE TYPE {s}.fencelock_reply AS (
  code text, number bigint, now bigint, ahead bigint, rest bigint,
  hold uuid, claim text, take bigint, size bigint, token bigint, who text, held bigint
);

-- They call each other.
SET LOCAL check_function_bodies = off;
