-- Holds that live with a session of the server: advisory locks. The advisory lock alone says who holds; what is written beside it gives
-- tokens, and names for people. A name is one strategy's at a time, so two that differ do not both get it.

-- Who has this advisory lock, and who waits for it.
CREATE FUNCTION {s}.fencelock_locks(p_key bigint, p_pair boolean)
RETURNS TABLE (pid integer, shared boolean, granted boolean, since timestamptz) LANGUAGE sql AS $f$
  SELECT k.pid, k.mode = 'ShareLock', k.granted, k.waitstart FROM pg_locks k
    WHERE k.locktype = 'advisory' AND k.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
      AND k.classid::bigint = (p_key >> 32) & 4294967295 AND k.objid::bigint = p_key & 4294967295
      AND k.objsubid = CASE WHEN p_pair THEN 2 ELSE 1 END
$f$;

CREATE FUNCTION {s}.fencelock_high(bigint) RETURNS integer LANGUAGE sql IMMUTABLE AS $$ SELECT ($1 >> 32)::integer $$;
CREATE FUNCTION {s}.fencelock_low(bigint) RETURNS integer LANGUAGE sql IMMUTABLE AS $$ SELECT (($1 << 32) >> 32)::integer $$;

CREATE FUNCTION {s}.fencelock_try(p_key bigint, p_pair boolean, p_shared boolean) RETURNS boolean LANGUAGE plpgsql AS $f$
BEGIN
  IF p_pair THEN
    RETURN CASE WHEN p_shared THEN pg_try_advisory_lock_shared({s}.fencelock_high(p_key), {s}.fencelock_low(p_key))
      ELSE pg_try_advisory_lock({s}.fencelock_high(p_key), {s}.fencelock_low(p_key)) END;
  END IF;
  RETURN CASE WHEN p_shared THEN pg_try_advisory_lock_shared(p_key) ELSE pg_try_advisory_lock(p_key) END;
END
$f$;

-- Waits in the server's own queue.
CREATE FUNCTION {s}.fencelock_wait(p_key bigint, p_pair boolean, p_shared boolean) RETURNS void LANGUAGE plpgsql AS $f$
BEGIN
  IF p_pair AND p_shared THEN
    PERFORM pg_advisory_lock_shared({s}.fencelock_high(p_key), {s}.fencelock_low(p_key));
  ELSIF p_pair THEN
    PERFORM pg_advisory_lock({s}.fencelock_high(p_key), {s}.fencelock_low(p_key));
  ELSIF p_shared THEN
    PERFORM pg_advisory_lock_shared(p_key);
  ELSE
    PERFORM pg_advisory_lock(p_key);
  END IF;
END
$f$;

CREATE FUNCTION {s}.fencelock_unlock(p_key bigint, p_pair boolean, p_shared boolean) RETURNS boolean LANGUAGE plpgsql AS $f$
BEGIN
  IF p_pair THEN
    RETURN CASE WHEN p_shared THEN pg_advisory_unlock_shared({s}.fencelock_high(p_key), {s}.fencelock_low(p_key))
      ELSE pg_advisory_unlock({s}.fencelock_high(p_key), {s}.fencelock_low(p_key)) END;
  END IF;
  RETURN CASE WHEN p_shared THEN pg_advisory_unlock_shared(p_key) ELSE pg_advisory_unlock(p_key) END;
END
$f$;

-- Somebody's session has it, or waits for it.
CREATE FUNCTION {s}.fencelock_borne(l {s}.fencelock_lock) RETURNS boolean LANGUAGE sql AS $f$
  SELECT l.key IS NOT NULL AND EXISTS (SELECT FROM {s}.fencelock_locks(l.key, l.pair))
$f$;

-- How long until the server ends this process, if it goes on saying nothing; all of the ttl where this role may not see that.
CREATE FUNCTION {s}.fencelock_rest(p_pid integer, p_ttl bigint, t timestamptz) RETURNS bigint LANGUAGE sql AS $f$
  SELECT greatest(p_ttl - ({s}.fencelock_us(t) - {s}.fencelock_us(coalesce(
    (SELECT a.state_change FROM pg_stat_get_activity(p_pid) a WHERE a.state = 'idle'), t))), 0)
$f$;

-- Those who hold, as they were written; then those who wait, in their order.
CREATE FUNCTION {s}.fencelock_bearers(l {s}.fencelock_lock, t timestamptz) RETURNS SETOF {s}.fencelock_reply LANGUAGE sql AS $f$
  SELECT 'holder', NULL::bigint, {s}.fencelock_us(t), NULL::bigint, {s}.fencelock_rest(l.pid, coalesce(l.ttl, 0), t), l.hold,
      CASE l.kind WHEN 'rw_lock' THEN 'w' ELSE 'm' END, 1::bigint, NULL::bigint, l.fence, l.who,
      {s}.fencelock_us(t) - {s}.fencelock_us(l.since)
    FROM {s}.fencelock_locks(l.key, l.pair) k WHERE k.granted AND NOT k.shared AND k.pid = l.pid AND l.hold IS NOT NULL
  UNION ALL
  SELECT 'holder', NULL, {s}.fencelock_us(t), NULL, {s}.fencelock_rest(b.pid, b.ttl, t), b.hold, b.claim, 1, NULL, b.token, b.who,
      {s}.fencelock_us(t) - {s}.fencelock_us(b.since)
    FROM {s}.fencelock_bearer b
    WHERE b.space = l.space AND b.name = l.name AND b.token IS NOT NULL
      AND EXISTS (SELECT FROM {s}.fencelock_locks(l.key, l.pair) k WHERE k.granted AND k.shared AND k.pid = b.pid)
  UNION ALL
  (SELECT 'waiter', NULL, {s}.fencelock_us(t), NULL, NULL, b.hold, b.claim, 1, NULL, NULL, b.who,
      {s}.fencelock_us(t) - {s}.fencelock_us(b.since)
    FROM {s}.fencelock_locks(l.key, l.pair) k
      JOIN {s}.fencelock_bearer b ON b.space = l.space AND b.name = l.name AND b.pid = k.pid AND b.token IS NULL
    WHERE NOT k.granted ORDER BY k.since NULLS LAST, b.since)
$f$;

-- Why it is not to be had now; of a process that waits, how many wait in front of it, if it does.
CREATE FUNCTION {s}.fencelock_look(p_space text, p_name text, p_key bigint, p_pair boolean, p_kind text, p_pid integer) RETURNS {s}.fencelock_reply
LANGUAGE plpgsql SET enable_seqscan = off SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  l {s}.fencelock_lock;
  r {s}.fencelock_reply;
  t timestamptz := clock_timestamp();
BEGIN
  SELECT * INTO l FROM {s}.fencelock_lock o WHERE o.space = p_space AND o.name = p_name;
  IF l.key = p_key AND l.kind <> p_kind THEN
    r.code := 'kind';
    r.who := l.kind;
    RETURN r;
  END IF;
  SELECT * INTO r FROM {s}.fencelock_bearers(l, t) b WHERE b.code = 'holder' LIMIT 1;
  r.code := 'busy';
  r.now := {s}.fencelock_us(t);
  r.ahead := (SELECT count(*) FROM {s}.fencelock_locks(p_key, p_pair) k
    WHERE NOT k.granted AND (p_pid IS NULL OR k.since < (
      SELECT w.since FROM {s}.fencelock_locks(p_key, p_pair) w WHERE w.pid = p_pid AND NOT w.granted)));
  IF p_pid IS NOT NULL AND NOT EXISTS (
    SELECT FROM {s}.fencelock_locks(p_key, p_pair) w WHERE w.pid = p_pid AND NOT w.granted AND w.since IS NOT NULL)
  THEN
    r.code := 'gone';
  END IF;
  RETURN r;
END
$f$;

-- This session has the advisory lock: it takes a token, and says who it is. Nobody waits here for a row (SAFETY E2, E3).
CREATE FUNCTION {s}.fencelock_seize(p_space text, p_name text, p_key bigint, p_pair boolean, p_hold uuid, p_kind text, p_claim text, p_ttl bigint, p_floor bigint, p_least bigint, p_who text)
RETURNS {s}.fencelock_reply LANGUAGE plpgsql SET enable_seqscan = off SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  l {s}.fencelock_lock;
  r {s}.fencelock_reply;
  t timestamptz;
BEGIN
  PERFORM {s}.fencelock_tables();
  IF NOT EXISTS (SELECT FROM {s}.fencelock_lock o WHERE o.space = p_space AND o.name = p_name) THEN
    INSERT INTO {s}.fencelock_lock (space, name, fence) SELECT p_space, p_name, greatest(m.floor, {s}.fencelock_us(clock_timestamp())) FROM {s}.fencelock_meta m
      WHERE m.one ON CONFLICT DO NOTHING;
  END IF;
  l := {s}.fencelock_take(p_space, p_name, false);
  t := clock_timestamp();
  r.now := {s}.fencelock_us(t);
  IF l.space IS NULL THEN
    r.code := 'locked';
    RETURN r;
  END IF;
  IF (l.key <> p_key OR l.pair <> p_pair) AND {s}.fencelock_borne(l) THEN
    r.code := 'layout';
    r.who := 'session with other keys';
    RETURN r;
  END IF;
  IF l.key IS NULL THEN
    l := {s}.fencelock_settle(l, t);
    IF l.kind <> 'cell' AND {s}.fencelock_lives(l, t, true) THEN
      r.code := 'layout';
      r.who := 'lease';
      RETURN r;
    END IF;
  ELSIF l.hold IS NOT NULL AND l.until > t AND l.hold <> p_hold AND l.since <= t THEN
    -- Its holder is gone, and it is not free before its time. (Where the clock was set back since nobody knows when that is.)
    r.code := 'reserved';
    r.rest := {s}.fencelock_us(l.until) - r.now;
    RETURN r;
  END IF;
  IF l.kind = 'cell' AND {s}.fencelock_lives(l, t, true) THEN
    r.code := 'kind';
    r.who := l.kind;
    RETURN r;
  END IF;
  -- Nobody who lives waits for a lease of it. *Invariant (SAFETY K1):* who has been silent and comes back finds no place here.
  DELETE FROM {s}.fencelock_waiter q WHERE q.space = p_space AND q.name = p_name;
  IF p_floor > l.fence AND p_floor > r.now + 86400000000 THEN
    p_floor := 0;
  END IF;
  r.code := 'done';
  r.number := greatest(l.fence + 1, r.now, p_floor + 1);
  IF p_claim = 'r' THEN
    DELETE FROM {s}.fencelock_bearer b WHERE b.ctid = ANY (ARRAY(SELECT o.ctid FROM {s}.fencelock_bearer o
      WHERE o.space = p_space AND o.name = p_name AND o.token IS NOT NULL
        AND NOT EXISTS (SELECT FROM {s}.fencelock_locks(p_key, p_pair) k WHERE k.granted AND k.pid = o.pid)
      FOR UPDATE SKIP LOCKED));
    UPDATE {s}.fencelock_lock o SET kind = p_kind, size = NULL, fence = r.number, key = p_key, pair = p_pair, pid = NULL, hold = NULL
      WHERE o.space = p_space AND o.name = p_name;
    INSERT INTO {s}.fencelock_bearer VALUES (p_space, p_name, p_hold, p_claim, pg_backend_pid(), r.number, p_ttl, t, p_who)
      ON CONFLICT (space, name, hold) DO UPDATE
        SET pid = excluded.pid, token = excluded.token, ttl = excluded.ttl, since = excluded.since;
  ELSE
    UPDATE {s}.fencelock_lock o SET kind = p_kind, size = NULL, fence = r.number, key = p_key, pair = p_pair,
        pid = pg_backend_pid(), hold = p_hold, ttl = p_ttl, since = t, who = p_who,
        until = CASE WHEN p_least > 0 THEN t + {s}.fencelock_span(p_least) END
      WHERE o.space = p_space AND o.name = p_name;
    DELETE FROM {s}.fencelock_bearer b WHERE b.space = p_space AND b.name = p_name AND b.hold = p_hold;
  END IF;
  PERFORM {s}.fencelock_durably();
  RETURN r;
END
$f$;

-- Takes it if it is free. Whatever goes wrong on the way leaves this session without it. A reader does not ride on another one's hold of
-- the same session while a writer waits (SAFETY K2).
CREATE FUNCTION {s}.fencelock_bear(p_space text, p_name text, p_key bigint, p_pair boolean, p_hold uuid, p_kind text, p_claim text, p_ttl bigint, p_floor bigint, p_least bigint, p_who text)
RETURNS {s}.fencelock_reply LANGUAGE plpgsql SET enable_seqscan = off SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  r {s}.fencelock_reply;
  shared boolean := p_claim = 'r';
BEGIN
  IF shared AND EXISTS (SELECT FROM {s}.fencelock_locks(p_key, p_pair) k WHERE NOT k.granted)
    OR NOT {s}.fencelock_try(p_key, p_pair, shared)
  THEN
    RETURN {s}.fencelock_look(p_space, p_name, p_key, p_pair, p_kind, NULL);
  END IF;
  BEGIN
    r := {s}.fencelock_seize(p_space, p_name, p_key, p_pair, p_hold, p_kind, p_claim, p_ttl, p_floor, p_least, p_who);
  EXCEPTION WHEN OTHERS OR query_canceled THEN
    PERFORM {s}.fencelock_unlock(p_key, p_pair, shared);
    RAISE;
  END;
  IF r.code <> 'done' THEN
    PERFORM {s}.fencelock_unlock(p_key, p_pair, shared);
  END IF;
  RETURN r;
END
$f$;

-- The same, and waits for it in the server's own queue: the statements of a function each see what was committed before they began.
CREATE FUNCTION {s}.fencelock_await(p_space text, p_name text, p_key bigint, p_pair boolean, p_hold uuid, p_kind text, p_claim text, p_ttl bigint, p_floor bigint, p_least bigint, p_who text)
RETURNS {s}.fencelock_reply LANGUAGE plpgsql SET enable_seqscan = off SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  PERFORM {s}.fencelock_wait(p_key, p_pair, p_claim = 'r');
  RETURN {s}.fencelock_seize(p_space, p_name, p_key, p_pair, p_hold, p_kind, p_claim, p_ttl, p_floor, p_least, p_who);
END
$f$;

-- For people: this session is about to wait.
CREATE FUNCTION {s}.fencelock_queue(p_space text, p_name text, p_hold uuid, p_claim text, p_ttl bigint, p_who text) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  INSERT INTO {s}.fencelock_bearer VALUES (p_space, p_name, p_hold, p_claim, pg_backend_pid(), NULL, p_ttl, clock_timestamp(), p_who)
    ON CONFLICT DO NOTHING;
END
$f$;

-- Ends the hold of this id in this session, and no other. What was never granted is not there.
CREATE FUNCTION {s}.fencelock_let_go(p_space text, p_name text, p_key bigint, p_pair boolean, p_hold uuid)
RETURNS {s}.fencelock_reply LANGUAGE plpgsql SET enable_seqscan = off SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  l {s}.fencelock_lock;
  r {s}.fencelock_reply;
BEGIN
  r.now := {s}.fencelock_us(clock_timestamp());
  r.code := 'gone';
  SELECT * INTO l FROM {s}.fencelock_lock o WHERE o.space = p_space AND o.name = p_name;
  IF l.hold = p_hold AND l.pid = pg_backend_pid() THEN
    -- What is given back is free, also before its time: core has waited for that, or nobody was ever told of it.
    IF l.until IS NOT NULL THEN
      l := {s}.fencelock_take(p_space, p_name, true);
      IF l.space IS NULL THEN
        r.code := 'locked';
        RETURN r;
      END IF;
      UPDATE {s}.fencelock_lock o SET until = NULL WHERE o.space = p_space AND o.name = p_name AND o.hold = p_hold;
    END IF;
    IF {s}.fencelock_unlock(p_key, p_pair, false) THEN
      r.code := 'done';
    END IF;
    RETURN r;
  END IF;
  -- As the table has it, not as the client believes: it may have become a reader's without hearing of it.
  IF EXISTS (SELECT FROM {s}.fencelock_bearer b WHERE b.space = p_space AND b.name = p_name AND b.hold = p_hold
    AND b.pid = pg_backend_pid() AND b.token IS NOT NULL)
  THEN
    PERFORM set_config('synchronous_commit', 'off', true);
    DELETE FROM {s}.fencelock_bearer b WHERE b.ctid = ANY (ARRAY(SELECT o.ctid FROM {s}.fencelock_bearer o
      WHERE o.space = p_space AND o.name = p_name AND o.hold = p_hold FOR UPDATE SKIP LOCKED));
    IF NOT FOUND THEN
      r.code := 'locked';
    ELSIF {s}.fencelock_unlock(p_key, p_pair, true) THEN
      r.code := 'done';
    END IF;
  END IF;
  RETURN r;
END
$f$;

-- A writer's hold becomes a reader's, under its token: the shared lock is taken beside the other, so nobody gets in between, and it does not
-- wait for those behind (SAFETY E3).
CREATE FUNCTION {s}.fencelock_soften(p_space text, p_name text, p_key bigint, p_pair boolean, p_hold uuid, p_ttl bigint)
RETURNS {s}.fencelock_reply LANGUAGE plpgsql SET enable_seqscan = off SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  l {s}.fencelock_lock;
  r {s}.fencelock_reply;
  t timestamptz := clock_timestamp();
BEGIN
  r.now := {s}.fencelock_us(t);
  SELECT b.token INTO r.number FROM {s}.fencelock_bearer b
    WHERE b.space = p_space AND b.name = p_name AND b.hold = p_hold AND b.pid = pg_backend_pid() AND b.token IS NOT NULL;
  IF FOUND THEN
    r.code := 'done';
    RETURN r;
  END IF;
  PERFORM {s}.fencelock_tables();
  l := {s}.fencelock_take(p_space, p_name, false);
  IF l.space IS NULL THEN
    r.code := 'locked';
    RETURN r;
  END IF;
  IF l.hold IS DISTINCT FROM p_hold OR l.pid <> pg_backend_pid() OR l.kind <> 'rw_lock' THEN
    r.code := 'gone';
    RETURN r;
  END IF;
  UPDATE {s}.fencelock_lock o SET hold = NULL, pid = NULL WHERE o.space = p_space AND o.name = p_name;
  INSERT INTO {s}.fencelock_bearer VALUES (p_space, p_name, p_hold, 'r', pg_backend_pid(), l.fence, p_ttl, l.since, l.who);
  PERFORM {s}.fencelock_durably();
  PERFORM set_config('lock_timeout', '200ms', true);
  BEGIN
    PERFORM {s}.fencelock_wait(p_key, p_pair, true);
    PERFORM {s}.fencelock_unlock(p_key, p_pair, false);
  EXCEPTION WHEN OTHERS OR query_canceled THEN
    -- What the server gives to a session outlives its transaction. Where only the one for readers is left the session is ended.
    IF (SELECT bool_or(k.shared) AND bool_or(NOT k.shared) FROM {s}.fencelock_locks(p_key, p_pair) k WHERE k.pid = pg_backend_pid() AND k.granted) THEN
      PERFORM {s}.fencelock_unlock(p_key, p_pair, true);
    END IF;
    RAISE;
  END;
  r.code := 'done';
  r.number := l.fence;
  RETURN r;
END
$f$;

-- Where the session is that holds this: it is told, and lets go.
CREATE FUNCTION {s}.fencelock_ask_back(l {s}.fencelock_lock, p_token bigint) RETURNS {s}.fencelock_reply LANGUAGE plpgsql AS $f$
DECLARE
  r {s}.fencelock_reply;
BEGIN
  SELECT b.hold, b.token INTO r.hold, r.token FROM {s}.fencelock_bearers(l, clock_timestamp()) b
    WHERE b.code = 'holder' AND b.token = p_token;
  IF NOT FOUND THEN
    RETURN r;
  END IF;
  r.number := CASE WHEN r.hold = l.hold THEN l.pid ELSE
    (SELECT b.pid FROM {s}.fencelock_bearer b WHERE b.space = l.space AND b.name = l.name AND b.hold = r.hold) END;
  PERFORM pg_notify('fencelock_session_' || r.number, r.hold::text);
  r.code := 'asked';
  RETURN r;
END
$f$;
