-- Locks that are shared with ShedLock, by its table, as its users make it; and what that has no columns for: the token, and who it is for us.
-- Times are by the server's clock, in UTC, without a zone (`usingDbTime()`).
CREATE TABLE IF NOT EXISTS {s}.shedlock (
  name varchar(64) NOT NULL PRIMARY KEY,
  lock_until timestamp NOT NULL,
  locked_at timestamp NOT NULL,
  locked_by varchar(255) NOT NULL
);
-- A row for each name that one of us has held. It stays, so its tokens go on rising (SAFETY T1).
-- Names that are one there are one here. `since`: when the token was given, in µs.
CREATE TABLE IF NOT EXISTS {s}.fencelock_shed AS
  SELECT o.name::text AS name, 0::bigint AS fence, 0::bigint AS since, NULL::uuid AS hold, ''::text AS who FROM {s}.shedlock o WITH NO DATA;
CREATE UNIQUE INDEX IF NOT EXISTS fencelock_shed_name ON {s}.fencelock_shed (name);
ALTER TABLE {s}.fencelock_shed ALTER name SET NOT NULL, REPLICA IDENTITY USING INDEX fencelock_shed_name;

CREATE OR REPLACE FUNCTION {s}.fencelock_shed_now() RETURNS timestamp LANGUAGE sql VOLATILE
AS $$ SELECT clock_timestamp() AT TIME ZONE 'UTC' $$;

-- There are times without a number: infinity is far away.
CREATE OR REPLACE FUNCTION {s}.fencelock_shed_us(timestamp) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT (extract(epoch FROM least(greatest($1, timestamp '0001-01-01'), timestamp '9999-12-31')) * 1000000)::bigint $$;

-- What ShedLock compares, so each hold has its own: with a host's name, its default, the unlocking of one that is over would end the next
-- one of the same host.
CREATE OR REPLACE FUNCTION {s}.fencelock_shed_by(hold uuid) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT 'fencelock ' || replace(hold::text, '-', '') $$;

-- Nobody's name is not ours.
CREATE OR REPLACE FUNCTION {s}.fencelock_shed_is(by text, hold uuid) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT coalesce(left(by, 42) = {s}.fencelock_shed_by(hold), false) $$;

-- Others have no token; in its place stands when they took it, which tells one hold from another, and is above all tokens that we gave
-- before, as many µs as it is later, and below all that we give after it.
CREATE OR REPLACE FUNCTION {s}.fencelock_shed_stands(at timestamp, fence bigint, since bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT greatest({s}.fencelock_shed_us(at), 1, fence + 1 + greatest({s}.fencelock_shed_us(at) - since, 0)) $$;

-- Who holds it, if somebody does. (No row of the table is passed on: a function of its type would keep its owners from dropping it.)
CREATE OR REPLACE FUNCTION {s}.fencelock_shed_tell(p_code text, p_name text, p_until timestamp, p_at timestamp, p_by text, n timestamp)
RETURNS {s}.fencelock_reply LANGUAGE plpgsql AS $f$
DECLARE
  r {s}.fencelock_reply;
  f {s}.fencelock_shed;
BEGIN
  r.code := p_code;
  r.now := {s}.fencelock_shed_us(n);
  IF p_until > n THEN
    r.claim := 'm';
    r.take := 1;
    r.held := greatest(r.now - {s}.fencelock_shed_us(p_at), 0);
    r.rest := {s}.fencelock_shed_us(p_until) - r.now;
    SELECT * INTO f FROM {s}.fencelock_shed o WHERE o.name = p_name;
    IF {s}.fencelock_shed_is(p_by, f.hold) THEN
      r.hold := f.hold;
      r.token := f.fence;
      r.who := f.who;
    ELSE
      r.hold := md5(p_by || p_at)::uuid;
      r.token := {s}.fencelock_shed_stands(p_at, f.fence, f.since);
      r.who := replace(coalesce(nullif(p_by, ''), '-'), ' ', '_') || ' 0 ShedLock';
    END IF;
  END IF;
  RETURN r;
END
$f$;

-- A millisecond more than the ttl: a column may keep no less, and rounds.
CREATE OR REPLACE FUNCTION {s}.fencelock_shed_end(n timestamp, ttl bigint) RETURNS timestamp LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT n + {s}.fencelock_span(ttl + 1000) $$;

-- Makes a row that is free for anybody: the grant is always the UPDATE. Long since: a column may round up. A transaction that has made it
-- and goes on is not waited for (SAFETY E2).
CREATE OR REPLACE FUNCTION {s}.fencelock_shed_make(p_name text, n timestamp) RETURNS void LANGUAGE plpgsql SET lock_timeout = '10ms' AS $f$
BEGIN
  INSERT INTO {s}.shedlock (name, lock_until, locked_at, locked_by) VALUES (p_name, '1970-01-02', n, 'fencelock') ON CONFLICT DO NOTHING;
EXCEPTION WHEN lock_not_available THEN
  NULL;
END
$f$;

-- The same as `fencelock_is_coming`.
CREATE OR REPLACE FUNCTION {s}.fencelock_shed_is_coming(p_name text) RETURNS boolean LANGUAGE plpgsql SET lock_timeout = '1ms' AS $f$
BEGIN
  INSERT INTO {s}.shedlock (name, lock_until, locked_at, locked_by) VALUES (p_name, '1970-01-02', '1970-01-02', 'fencelock') ON CONFLICT DO NOTHING;
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'FL002';
  END IF;
  RETURN true;
EXCEPTION
  WHEN SQLSTATE 'FL002' THEN
    RETURN false;
  WHEN lock_not_available THEN
    RETURN true;
END
$f$;

-- Claims. It alone creates (SAFETY A2). A try that fails writes nothing.
CREATE OR REPLACE FUNCTION {s}.fencelock_shed_acquire(p_name text, p_hold uuid, p_ttl bigint, p_not_after bigint, p_floor bigint, p_who text)
RETURNS {s}.fencelock_reply LANGUAGE plpgsql SET enable_seqscan = off AS $f$
DECLARE
  l record;
  f {s}.fencelock_shed;
  r {s}.fencelock_reply;
  n timestamp;
  later bigint;
  mine boolean;
BEGIN
  SELECT {row} WHERE s.name = p_name;
  -- It may have waited for the table.
  n := {s}.fencelock_shed_now();
  r.code := 'past';
  r.now := {s}.fencelock_shed_us(n);
  IF r.now > p_not_after THEN
    RETURN r;
  END IF;
  IF l.lock_until > n AND NOT {s}.fencelock_shed_is(l.locked_by, p_hold) THEN
    RETURN {s}.fencelock_shed_tell('busy', p_name, l.lock_until, l.locked_at, l.locked_by, n);
  END IF;
  -- Whatever is waited for is waited for now, while no row is kept (SAFETY A2, E2).
  LOCK TABLE {s}.shedlock, {s}.fencelock_shed IN ROW EXCLUSIVE MODE;
  IF l.name IS NULL THEN
    n := {s}.fencelock_shed_now();
    r.now := {s}.fencelock_shed_us(n);
    IF r.now > p_not_after THEN
      RETURN r;
    END IF;
    PERFORM {s}.fencelock_shed_make(p_name, n);
  END IF;
  SELECT {row} WHERE s.name = p_name FOR UPDATE SKIP LOCKED;
  n := {s}.fencelock_shed_now();
  r.now := {s}.fencelock_shed_us(n);
  IF l.name IS NULL THEN
    r.code := 'locked';
    RETURN r;
  END IF;
  mine := l.lock_until > n AND {s}.fencelock_shed_is(l.locked_by, p_hold);
  IF l.lock_until > n AND NOT mine THEN
    RETURN {s}.fencelock_shed_tell('busy', p_name, l.lock_until, l.locked_at, l.locked_by, n);
  END IF;
  IF r.now > p_not_after THEN
    RETURN r;
  END IF;
  SELECT * INTO f FROM {s}.fencelock_shed o WHERE o.name = p_name;
  r.code := 'done';
  r.number := f.fence;
  IF NOT mine OR f.hold IS DISTINCT FROM p_hold THEN
    -- Above all that stood for somebody's hold, but for what a clock far ahead has left.
    later := r.now + 86400000000;
    r.number := greatest(coalesce(f.fence, 0) + 1, r.now, CASE WHEN p_floor <= greatest(f.fence, later) THEN p_floor + 1 END,
      CASE WHEN {s}.fencelock_shed_us(l.locked_at) < later THEN {s}.fencelock_shed_stands(l.locked_at, f.fence, f.since) + 1 END);
    INSERT INTO {s}.fencelock_shed (name, fence, since, hold, who) VALUES (p_name, r.number, r.now, p_hold, p_who)
      ON CONFLICT (name) DO UPDATE SET fence = excluded.fence, since = excluded.since, hold = excluded.hold, who = excluded.who;
  END IF;
  -- A late copy takes nothing back of what was extended meanwhile.
  UPDATE {s}.shedlock o SET lock_until = greatest(CASE WHEN mine THEN o.lock_until END, {s}.fencelock_shed_end(n, p_ttl)),
      locked_at = CASE WHEN mine THEN o.locked_at ELSE n END,
      locked_by = {s}.fencelock_shed_by(p_hold) || ' ' || left(split_part(p_who, ' ', 1), 200)
    WHERE o.name = p_name;
  PERFORM {s}.fencelock_durably();
  RETURN r;
END
$f$;

-- Of each a letter: e it is extended, g it is gone, u somebody keeps its row.
CREATE OR REPLACE FUNCTION {s}.fencelock_shed_renew(p_names text[], p_holds uuid[], p_tokens bigint[], p_ttls bigint[]) RETURNS text
LANGUAGE plpgsql SET enable_seqscan = off AS $f$
DECLARE
  l record;
  n timestamp;
  answers text := '';
BEGIN
  FOR i IN 1 .. cardinality(p_names) LOOP
    SELECT {row} WHERE s.name = p_names[i] FOR UPDATE SKIP LOCKED;
    n := {s}.fencelock_shed_now();
    IF NOT FOUND AND EXISTS (SELECT FROM {s}.shedlock o WHERE o.name = p_names[i]) THEN
      answers := answers || 'u';
    ELSIF l.lock_until > n AND {s}.fencelock_shed_is(l.locked_by, p_holds[i])
      AND EXISTS (SELECT FROM {s}.fencelock_shed o WHERE o.name = p_names[i] AND o.hold = p_holds[i] AND o.fence = p_tokens[i])
    THEN
      UPDATE {s}.shedlock o SET lock_until = greatest(o.lock_until, {s}.fencelock_shed_end(n, p_ttls[i])) WHERE o.name = p_names[i];
      answers := answers || 'e';
    ELSE
      answers := answers || 'g';
    END IF;
  END LOOP;
  PERFORM {s}.fencelock_durably();
  RETURN answers;
END
$f$;

-- Ends this hold, with a token only if it is that one.
CREATE OR REPLACE FUNCTION {s}.fencelock_shed_release(p_name text, p_hold uuid, p_token bigint) RETURNS {s}.fencelock_reply
LANGUAGE plpgsql SET enable_seqscan = off AS $f$
DECLARE
  l record;
  r {s}.fencelock_reply;
  n timestamp;
BEGIN
  SELECT {row} WHERE s.name = p_name FOR UPDATE SKIP LOCKED;
  n := {s}.fencelock_shed_now();
  IF NOT FOUND THEN
    r.code := CASE WHEN EXISTS (SELECT FROM {s}.shedlock o WHERE o.name = p_name) THEN 'locked' END;
    IF r.code IS NULL AND p_token IS NULL THEN
      -- *Invariant (SAFETY A3):* an attempt that is about to be granted a lock that was never there is found by whoever takes it back. (What is
      -- made and undone by that is no reason to wait for the disk.)
      PERFORM set_config('synchronous_commit', 'off', true);
      r.code := CASE WHEN {s}.fencelock_shed_is_coming(p_name) THEN 'locked' END;
    END IF;
    IF r.code IS NOT NULL THEN
      r.now := {s}.fencelock_shed_us(n);
      RETURN r;
    END IF;
  END IF;
  r := {s}.fencelock_shed_tell('gone', p_name, l.lock_until, l.locked_at, l.locked_by, n);
  IF r.hold = p_hold AND (p_token IS NULL OR r.token = p_token) THEN
    -- Not now: a column may round up, and the clock may be set back.
    UPDATE {s}.shedlock o SET lock_until = least(l.locked_at, n) WHERE o.name = p_name;
    r.code := 'done';
  END IF;
  RETURN r;
END
$f$;

-- Breaks the hold of this token, or of what stands in its place, and no other. Whoever had it finds another name there, and knows.
CREATE OR REPLACE FUNCTION {s}.fencelock_shed_force(p_name text, p_token bigint) RETURNS {s}.fencelock_reply LANGUAGE plpgsql SET enable_seqscan = off AS $f$
DECLARE
  l record;
  r {s}.fencelock_reply;
  n timestamp;
BEGIN
  SELECT {row} WHERE s.name = p_name FOR UPDATE SKIP LOCKED;
  n := {s}.fencelock_shed_now();
  IF NOT FOUND AND EXISTS (SELECT FROM {s}.shedlock o WHERE o.name = p_name) THEN
    r.code := 'locked';
    r.now := {s}.fencelock_shed_us(n);
    RETURN r;
  END IF;
  r := {s}.fencelock_shed_tell('gone', p_name, l.lock_until, l.locked_at, l.locked_by, n);
  IF r.token = p_token THEN
    UPDATE {s}.shedlock o SET lock_until = least(l.locked_at, n), locked_by = 'fencelock release' WHERE o.name = p_name;
    r.code := 'done';
  END IF;
  RETURN r;
END
$f$;

CREATE OR REPLACE FUNCTION {s}.fencelock_shed_inspect(p_name text) RETURNS SETOF {s}.fencelock_reply LANGUAGE plpgsql STABLE SET enable_seqscan = off AS $f$
DECLARE
  l record;
  r {s}.fencelock_reply;
  n timestamp := {s}.fencelock_shed_now();
BEGIN
  r.code := 'lock';
  r.who := 'mutex';
  r.number := (SELECT o.fence FROM {s}.fencelock_shed o WHERE o.name = p_name);
  RETURN NEXT r;
  SELECT {row} WHERE s.name = p_name;
  r := {s}.fencelock_shed_tell('holder', p_name, l.lock_until, l.locked_at, l.locked_by, n);
  IF r.hold IS NOT NULL THEN
    RETURN NEXT r;
  END IF;
END
$f$;
