-- What the functions have in common. One of SQL is planned with each call, unless the server makes it a part of the caller's expression: it
-- does where there is no query in it, and nothing that changes more easily than the function says (a timestamptz is STABLE at best). The
-- others are of plpgsql, which keeps its plans.
--
-- *Invariant:* what a client waits for finds its rows by an index, whatever the server found in the tables when it planned (`enable_seqscan`, in
-- each function that clients call, but the one that cleans up). A grant changes the token, which is a key, so it leaves a row behind in another
-- place; a plan of when all was one page reads that page and all that have come since, until the next vacuum.
--
-- *Invariant:* what they call is the server's own, or named with its schema (`search_path`, in each function that clients call): in a database
-- where everybody may make things in a schema of the caller's path, an operator that fits better than the server's would run as the caller.

CREATE FUNCTION {s}.fencelock_us(timestamptz) RETURNS bigint LANGUAGE sql STABLE STRICT PARALLEL SAFE
AS $$ SELECT (extract(epoch FROM $1) * 1000000)::bigint $$;

CREATE FUNCTION {s}.fencelock_span(bigint) RETURNS interval LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT $1 * interval '1 microsecond' $$;

-- Of what a claim is.
CREATE FUNCTION {s}.fencelock_kind(claim text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT CASE claim WHEN 'm' THEN 'mutex' WHEN 'p' THEN 'semaphore' ELSE 'rw_lock' END $$;

-- Whether there is room for this claim beside what is held, and nobody has it alone.
CREATE FUNCTION {s}.fencelock_room(size bigint, held bigint, claim text, take bigint) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT CASE claim WHEN 'r' THEN true WHEN 'p' THEN held + take <= size ELSE held = 0 END $$;

-- A client that said so lately lives. Where the clock was set back it has to say it again.
CREATE FUNCTION {s}.fencelock_hears(until timestamptz, t timestamptz) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT until > t AND until < t + interval '10 seconds' $$;

-- So long it does after a sign of life: whoever is first looks four times a second, and the next one is in within three seconds.
CREATE FUNCTION {s}.fencelock_heard_until(t timestamptz) RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT t + interval '2700 milliseconds' $$;

-- And where the server's process for its ears is known, it is there: a client that is killed is dead at once. (Behind a pooler that
-- process is another one's too, and lives on.)
CREATE FUNCTION {s}.fencelock_is_there(pid integer) RETURNS boolean LANGUAGE plpgsql AS $f$
BEGIN
  RETURN pid IS NULL OR EXISTS (SELECT FROM pg_stat_get_activity(pid));
END
$f$;

CREATE FUNCTION {s}.fencelock_alive(until timestamptz, pid integer, t timestamptz) RETURNS boolean LANGUAGE plpgsql AS $f$
BEGIN
  RETURN {s}.fencelock_hears(until, t) AND {s}.fencelock_is_there(pid);
END
$f$;

-- Nothing is promised to a holder that is not on the disk, whatever the role's own setting says; and a wait for the standbys that somebody
-- cancels is told by a warning.
CREATE FUNCTION {s}.fencelock_durably() RETURNS void LANGUAGE plpgsql AS $f$
BEGIN
  IF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
  IF current_setting('client_min_messages') = 'error' THEN
    PERFORM set_config('client_min_messages', 'warning', true);
  END IF;
END
$f$;

-- The clock was set back, and something ends later than its lease is long, by more than what is granted while this looks: whoever looks without
-- the lock's row knows nothing by it.
CREATE FUNCTION {s}.fencelock_is_skewed(l {s}.fencelock_lock, t timestamptz) RETURNS boolean LANGUAGE plpgsql AS $f$
BEGIN
  RETURN l.hold IS NOT NULL AND l.until > t + {s}.fencelock_span(l.ttl) + interval '1 second'
    OR l.kind IN ('rw_lock', 'semaphore') AND EXISTS (SELECT FROM {s}.fencelock_holder h
      WHERE h.space = l.space AND h.name = l.name AND h.until > t + {s}.fencelock_span(h.ttl) + interval '1 second');
END
$f$;

-- Waits for whoever has locked one of the tables (`LOCK TABLE`, `CREATE INDEX`).
--
-- *Invariant (SAFETY A2, E2):* whoever may grant, or take somebody's place in a queue, does so before he takes a row, and waits for no table after it:
-- what he reads of the clock then is when the lease begins, whether his command is over, and who is alive; and nobody's row is kept while he waits.
CREATE FUNCTION {s}.fencelock_tables() RETURNS void LANGUAGE plpgsql AS $f$
BEGIN
  LOCK TABLE {s}.fencelock_lock, {s}.fencelock_holder, {s}.fencelock_waiter, {s}.fencelock_client, {s}.fencelock_bearer, {s}.fencelock_cell,
    {s}.fencelock_write IN ROW EXCLUSIVE MODE;
END
$f$;

-- Whether somebody's transaction has made this row, and goes on: nobody sees it yet. What is made here is undone at once. One that
-- ends within that time is found when it is asked again.
CREATE FUNCTION {s}.fencelock_is_coming(p_space text, p_name text) RETURNS boolean LANGUAGE plpgsql SET lock_timeout = '1ms' AS $f$
BEGIN
  INSERT INTO {s}.fencelock_lock (space, name, fence) VALUES (p_space, p_name, 0) ON CONFLICT DO NOTHING;
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

-- The lock's row. Whoever else has it mostly commits before an answer would have come and gone, so that is looked for again, for 3 ms
-- in all; whoever gives something back is as stubborn as those who want it. Whoever keeps it for longer is waited for by nobody (SAFETY E2).
-- None: it is kept, or is not there. `p_stays`: it is not taken over, so beside a transaction that only keeps it from that (SAFETY E2).
-- `p_once`: this transaction has others already, for which nobody waits longer; or it was kept for many looks, and its client has one
-- connection for all its locks.
CREATE FUNCTION {s}.fencelock_take(p_space text, p_name text, p_stays boolean, p_once boolean DEFAULT false) RETURNS {s}.fencelock_lock LANGUAGE plpgsql AS $f$
DECLARE
  l {s}.fencelock_lock;
BEGIN
  FOR i IN 0 .. 62 LOOP
    IF i > 60 THEN
      PERFORM pg_sleep(0.001);
    END IF;
    IF p_stays THEN
      SELECT * INTO l FROM {s}.fencelock_lock o WHERE o.space = p_space AND o.name = p_name FOR NO KEY UPDATE SKIP LOCKED;
    ELSE
      SELECT * INTO l FROM {s}.fencelock_lock o WHERE o.space = p_space AND o.name = p_name FOR UPDATE SKIP LOCKED;
    END IF;
    EXIT WHEN FOUND OR p_once;
    EXIT WHEN i = 0 AND NOT EXISTS (SELECT FROM {s}.fencelock_lock o WHERE o.space = p_space AND o.name = p_name);
  END LOOP;
  RETURN l;
END
$f$;

-- What is over goes, but what somebody's own transaction keeps (SAFETY E2: nobody waits for that); it counts on. A clock that was
-- set back has left ends that are further away than their leases are long: these are cut. Only under the lock's row.
--
-- *Invariant:* readers and permits are renewed beside it. What was renewed after `t` ends later than a lease after `t`, and its holder counts on
-- that: so the clock is read anew, after the end was, also where the row was waited for (SAFETY E2).
CREATE FUNCTION {s}.fencelock_settle(l {s}.fencelock_lock, t timestamptz) RETURNS {s}.fencelock_lock
LANGUAGE plpgsql AS $f$
BEGIN
  IF l.hold IS NOT NULL AND l.until > t + {s}.fencelock_span(l.ttl) THEN
    l.until := t + {s}.fencelock_span(l.ttl);
    UPDATE {s}.fencelock_lock o SET until = l.until WHERE o.space = l.space AND o.name = l.name;
  END IF;
  IF l.kind IN ('rw_lock', 'semaphore') THEN
    UPDATE {s}.fencelock_holder h SET until = clock_timestamp() + {s}.fencelock_span(h.ttl)
      WHERE h.ctid = ANY (ARRAY(SELECT o.ctid FROM {s}.fencelock_holder o WHERE o.space = l.space AND o.name = l.name
          AND o.until > clock_timestamp() + {s}.fencelock_span(o.ttl) FOR NO KEY UPDATE SKIP LOCKED))
        AND h.until > clock_timestamp() + {s}.fencelock_span(h.ttl);
    DELETE FROM {s}.fencelock_holder h WHERE h.ctid = ANY (ARRAY(
      SELECT o.ctid FROM {s}.fencelock_holder o
        WHERE o.space = l.space AND o.name = l.name AND o.until <= t FOR UPDATE SKIP LOCKED));
  END IF;
  RETURN l;
END
$f$;

-- Whether this claim fits in together with all who wait in front of it: whoever is not in the queue has all of them in front.
CREATE FUNCTION {s}.fencelock_fits(l {s}.fencelock_lock, t timestamptz, settled boolean, p_hold uuid, p_claim text, p_take bigint)
RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  held bigint := 0;
  w record;
BEGIN
  IF l.hold IS NOT NULL AND l.until > t OR l.key IS NOT NULL AND {s}.fencelock_borne(l) THEN
    RETURN false;
  END IF;
  IF l.kind IN ('rw_lock', 'semaphore') THEN
    SELECT coalesce(sum(h.take), 0) INTO held FROM {s}.fencelock_holder h
      WHERE h.space = l.space AND h.name = l.name AND (settled OR h.until > t);
  END IF;
  FOR w IN
    SELECT q.ticket, q.hold, q.claim, q.take, c.until, c.pid
      FROM {s}.fencelock_waiter q LEFT JOIN {s}.fencelock_client c ON c.client = q.client
      WHERE q.space = l.space AND q.name = l.name ORDER BY q.ticket
  LOOP
    IF w.hold <> p_hold AND {s}.fencelock_alive(w.until, w.pid, t) IS NOT TRUE THEN
      -- One who is deaf for a moment keeps his place, and is passed: also when the server itself stood still for some seconds.
      IF settled AND (w.until IS NULL OR w.until < t - interval '30 seconds') THEN
        DELETE FROM {s}.fencelock_waiter q WHERE q.ctid = ANY (ARRAY(SELECT o.ctid FROM {s}.fencelock_waiter o
          WHERE o.space = l.space AND o.name = l.name AND o.ticket = w.ticket FOR UPDATE SKIP LOCKED));
      END IF;
      CONTINUE;
    END IF;
    IF NOT {s}.fencelock_room(l.size, held, w.claim, w.take) THEN
      RETURN false;
    END IF;
    IF w.hold = p_hold THEN
      RETURN true;
    END IF;
    IF w.claim IN ('m', 'w') THEN
      RETURN false;
    END IF;
    held := held + w.take;
  END LOOP;
  RETURN {s}.fencelock_room(l.size, held, p_claim, p_take);
END
$f$;

-- Somebody has it or wants it as what it is, so it cannot become anything else (SAFETY K1).
CREATE FUNCTION {s}.fencelock_lives(l {s}.fencelock_lock, t timestamptz, settled boolean) RETURNS boolean LANGUAGE plpgsql AS $f$
BEGIN
  RETURN l.hold IS NOT NULL AND l.until > t
    OR l.key IS NOT NULL AND {s}.fencelock_borne(l)
    OR EXISTS (SELECT FROM {s}.fencelock_holder h WHERE h.space = l.space AND h.name = l.name AND (settled OR h.until > t))
    OR EXISTS (SELECT FROM {s}.fencelock_waiter q JOIN {s}.fencelock_client c ON c.client = q.client
      WHERE q.space = l.space AND q.name = l.name AND {s}.fencelock_hears(c.until, t))
    OR EXISTS (SELECT FROM {s}.fencelock_cell v WHERE v.space = l.space AND v.name = l.name AND v.value IS NOT NULL);
END
$f$;

-- Adds somebody who is in the way, how many wait before this ticket, and how long until something ends by itself.
CREATE FUNCTION {s}.fencelock_tell(p_code text, l {s}.fencelock_lock, t timestamptz, p_ticket bigint) RETURNS {s}.fencelock_reply
LANGUAGE plpgsql AS $f$
DECLARE
  r {s}.fencelock_reply;
  h {s}.fencelock_holder;
BEGIN
  r.code := p_code;
  r.now := {s}.fencelock_us(t);
  r.size := l.size;
  r.ahead := (SELECT count(*) FROM (
    SELECT FROM {s}.fencelock_waiter q JOIN {s}.fencelock_client c ON c.client = q.client
      WHERE q.space = l.space AND q.name = l.name AND q.ticket < p_ticket AND {s}.fencelock_hears(c.until, t) LIMIT 100) AS them);
  IF l.hold IS NOT NULL AND l.until > t THEN
    r.hold := l.hold;
    r.claim := CASE l.kind WHEN 'rw_lock' THEN 'w' ELSE 'm' END;
    r.take := 1;
    r.token := l.fence;
    r.who := l.who;
    r.held := r.now - {s}.fencelock_us(l.since);
    r.rest := {s}.fencelock_us(l.until) - r.now;
  ELSIF l.key IS NOT NULL THEN
    SELECT b.hold, b.claim, b.take, b.token, b.who, b.held, b.rest
      INTO r.hold, r.claim, r.take, r.token, r.who, r.held, r.rest
      FROM {s}.fencelock_bearers(l, t) b WHERE b.code = 'holder' LIMIT 1;
  ELSIF l.kind IN ('rw_lock', 'semaphore') THEN
    SELECT * INTO h FROM {s}.fencelock_holder o
      WHERE o.space = l.space AND o.name = l.name AND o.until > t ORDER BY o.until LIMIT 1;
    IF FOUND THEN
      r.hold := h.hold;
      r.claim := h.claim;
      r.take := h.take;
      r.token := h.token;
      r.who := h.who;
      r.held := r.now - {s}.fencelock_us(h.since);
      r.rest := {s}.fencelock_us(h.until) - r.now;
    END IF;
  END IF;
  RETURN r;
END
$f$;

-- Which lock it is about is said, too: one that nobody there waits for any more is given back (SAFETY G2). A queue of words that is full, since
-- somebody's session listens and never reads, would undo what is told: whoever is not told looks.
CREATE FUNCTION {s}.fencelock_word(client uuid, space text, name text, hold uuid) RETURNS void LANGUAGE sql
AS $$ SELECT pg_notify('fencelock_' || client, hold || ' ' || octet_length(space) || ' ' || space || name) WHERE pg_notification_queue_usage() < 0.9 $$;

-- Those who fit in now are told so. What changes the queue alone need not be on the disk (SAFETY G2: a push is a hint).
CREATE FUNCTION {s}.fencelock_ring(l {s}.fencelock_lock, t timestamptz) RETURNS void LANGUAGE plpgsql AS $f$
DECLARE
  held bigint := 0;
  told integer := 0;
  w record;
BEGIN
  IF l.hold IS NOT NULL AND l.until > t THEN
    RETURN;
  END IF;
  IF l.kind IN ('rw_lock', 'semaphore') THEN
    SELECT coalesce(sum(h.take), 0) INTO held FROM {s}.fencelock_holder h WHERE h.space = l.space AND h.name = l.name;
  END IF;
  FOR w IN
    SELECT q.hold, q.client, q.claim, q.take, c.until, c.pid
      FROM {s}.fencelock_waiter q LEFT JOIN {s}.fencelock_client c ON c.client = q.client
      WHERE q.space = l.space AND q.name = l.name ORDER BY q.ticket
  LOOP
    CONTINUE WHEN {s}.fencelock_alive(w.until, w.pid, t) IS NOT TRUE;
    EXIT WHEN told >= 256 OR NOT {s}.fencelock_room(l.size, held, w.claim, w.take);
    PERFORM {s}.fencelock_word(w.client, l.space, l.name, w.hold);
    EXIT WHEN w.claim IN ('m', 'w');
    held := held + w.take;
    told := told + 1;
  END LOOP;
END
$f$;

-- A grant is on the disk before it is told.
CREATE FUNCTION {s}.fencelock_give(l {s}.fencelock_lock, t timestamptz, p_hold uuid, p_kind text, p_claim text, p_take bigint, p_size bigint, p_ttl bigint, p_floor bigint, p_who text)
RETURNS {s}.fencelock_reply LANGUAGE plpgsql AS $f$
DECLARE
  r {s}.fencelock_reply;
BEGIN
  r.code := 'done';
  r.now := {s}.fencelock_us(t);
  r.held := 0;
  IF p_floor > l.fence AND p_floor > r.now + 86400000000 THEN
    p_floor := 0;
  END IF;
  r.number := greatest(l.fence + 1, r.now, p_floor + 1);
  IF p_claim IN ('m', 'w') THEN
    UPDATE {s}.fencelock_lock o SET kind = p_kind, fence = r.number, hold = p_hold, ttl = p_ttl, who = p_who, key = NULL,
        until = t + {s}.fencelock_span(p_ttl), since = t
      WHERE o.space = l.space AND o.name = l.name;
  ELSE
    UPDATE {s}.fencelock_lock o SET kind = p_kind, size = nullif(p_size, 0), fence = r.number, hold = NULL, key = NULL
      WHERE o.space = l.space AND o.name = l.name;
    INSERT INTO {s}.fencelock_holder VALUES
      (l.space, l.name, p_hold, p_claim, p_take, r.number, p_ttl, t + {s}.fencelock_span(p_ttl), t, p_who);
  END IF;
  PERFORM {s}.fencelock_durably();
  RETURN r;
END
$f$;

-- This very attempt's grant, if there is one: it has its full ttl again, in this same step (SAFETY G1). No code: there is none.
CREATE FUNCTION {s}.fencelock_find(l {s}.fencelock_lock, t timestamptz, p_hold uuid, p_ttl bigint) RETURNS {s}.fencelock_reply
LANGUAGE plpgsql AS $f$
DECLARE
  r {s}.fencelock_reply;
BEGIN
  r.now := {s}.fencelock_us(t);
  IF l.hold = p_hold AND l.until > t THEN
    UPDATE {s}.fencelock_lock o SET ttl = greatest(o.ttl, p_ttl), until = greatest(o.until, t + {s}.fencelock_span(p_ttl))
      WHERE o.space = l.space AND o.name = l.name;
    r.code := 'done';
    r.number := l.fence;
    r.held := r.now - {s}.fencelock_us(l.since);
  ELSIF l.kind IN ('rw_lock', 'semaphore') THEN
    UPDATE {s}.fencelock_holder h SET ttl = greatest(h.ttl, p_ttl), until = greatest(h.until, t + {s}.fencelock_span(p_ttl))
      WHERE h.ctid = ANY (ARRAY(SELECT o.ctid FROM {s}.fencelock_holder o
        WHERE o.space = l.space AND o.name = l.name AND o.hold = p_hold AND o.until > t FOR NO KEY UPDATE SKIP LOCKED))
      RETURNING 'done', h.token, r.now - {s}.fencelock_us(h.since) INTO r.code, r.number, r.held;
    IF NOT FOUND AND EXISTS (SELECT FROM {s}.fencelock_holder o
      WHERE o.space = l.space AND o.name = l.name AND o.hold = p_hold AND o.until > t)
    THEN
      r.code := 'locked';
    END IF;
  END IF;
  IF r.code IS NOT NULL THEN
    PERFORM {s}.fencelock_durably();
  END IF;
  RETURN r;
END
$f$;
