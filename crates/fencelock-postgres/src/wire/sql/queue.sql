-- The life of a hold.

-- Why this claim has to go away or to wait; no code: it need not. Whoever tries passes nobody who waits.
CREATE FUNCTION {s}.fencelock_refusal(l {s}.fencelock_lock, t timestamptz, settled boolean, p_hold uuid, p_kind text, p_claim text, p_take bigint, p_size bigint)
RETURNS {s}.fencelock_reply LANGUAGE plpgsql AS $f$
DECLARE
  r {s}.fencelock_reply;
BEGIN
  r.now := {s}.fencelock_us(t);
  -- Somebody's session has it, or one that is gone keeps it before its time.
  IF l.key IS NOT NULL AND (l.hold IS NOT NULL AND l.until > t OR {s}.fencelock_borne(l)) THEN
    r.code := 'layout';
    r.who := 'session';
    RETURN r;
  END IF;
  IF l.kind = p_kind AND p_size > 0 AND l.size <> p_size THEN
    r.code := 'size';
    r.size := l.size;
    RETURN r;
  END IF;
  IF l.kind <> p_kind AND {s}.fencelock_lives(l, t, settled) THEN
    -- Without the row's lock it may have become another kind since that was read.
    IF NOT settled
      AND NOT EXISTS (SELECT FROM {s}.fencelock_lock o WHERE o.space = l.space AND o.name = l.name AND o.kind = l.kind)
    THEN
      RETURN r;
    END IF;
    r.code := 'kind';
    r.who := l.kind;
    RETURN r;
  END IF;
  l.kind := p_kind;
  l.size := nullif(p_size, 0);
  IF NOT {s}.fencelock_fits(l, t, settled, p_hold, p_claim, p_take) THEN
    RETURN {s}.fencelock_tell('busy', l, t, 9223372036854775807);
  END IF;
  RETURN r;
END
$f$;

-- Claims, or queues. It alone creates, beside an adoption (SAFETY A2).
CREATE FUNCTION {s}.fencelock_acquire(p_space text, p_name text, p_hold uuid, p_kind text, p_claim text, p_take bigint, p_size bigint, p_ttl bigint, p_not_after bigint, p_floor bigint, p_wait boolean, p_client uuid, p_pid integer, p_who text, p_once boolean DEFAULT false)
RETURNS {s}.fencelock_reply LANGUAGE plpgsql SET enable_seqscan = off SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  l {s}.fencelock_lock;
  r {s}.fencelock_reply;
  t timestamptz;
BEGIN
  SELECT * INTO l FROM {s}.fencelock_lock o WHERE o.space = p_space AND o.name = p_name;
  -- It may have waited for the table.
  t := clock_timestamp();
  IF l.space IS NOT NULL AND NOT p_wait AND l.hold IS DISTINCT FROM p_hold
    AND NOT EXISTS (SELECT FROM {s}.fencelock_holder h WHERE h.space = p_space AND h.name = p_name AND h.hold = p_hold)
    AND NOT coalesce({s}.fencelock_is_skewed(l, t), false)
  THEN
    -- A try that fails writes nothing, not even a transaction's number.
    r := {s}.fencelock_refusal(l, t, false, p_hold, p_kind, p_claim, p_take, p_size);
    IF r.code IS NOT NULL THEN
      RETURN r;
    END IF;
  END IF;
  PERFORM {s}.fencelock_tables();
  IF l.space IS NULL THEN
    r.code := 'past';
    r.now := {s}.fencelock_us(clock_timestamp());
    IF r.now > p_not_after THEN
      RETURN r;
    END IF;
    -- As if it had been used now: a clean-up leaves it alone.
    INSERT INTO {s}.fencelock_lock (space, name, fence) SELECT p_space, p_name, greatest(m.floor, {s}.fencelock_us(clock_timestamp())) FROM {s}.fencelock_meta m
      WHERE m.one ON CONFLICT DO NOTHING;
  END IF;
  l := {s}.fencelock_take(p_space, p_name, false, p_once);
  t := clock_timestamp();
  r.now := {s}.fencelock_us(t);
  IF l.space IS NULL THEN
    r.code := 'locked';
    RETURN r;
  END IF;
  l := {s}.fencelock_settle(l, t);
  r := {s}.fencelock_find(l, t, p_hold, p_ttl);
  IF r.code IS NOT NULL THEN
    RETURN r;
  END IF;
  IF r.now > p_not_after THEN
    r.code := 'past';
    RETURN r;
  END IF;
  r := {s}.fencelock_refusal(l, t, true, p_hold, p_kind, p_claim, p_take, p_size);
  -- It becomes another kind, since nobody lives who wants it as what it was: who of those comes back begins anew.
  IF l.kind <> p_kind AND (r.code IS NULL OR r.code = 'busy' AND p_wait) THEN
    DELETE FROM {s}.fencelock_waiter q WHERE q.space = p_space AND q.name = p_name;
  END IF;
  IF r.code IS NULL THEN
    DELETE FROM {s}.fencelock_waiter q WHERE q.space = p_space AND q.name = p_name AND q.hold = p_hold;
    RETURN {s}.fencelock_give(l, t, p_hold, p_kind, p_claim, p_take, p_size, p_ttl, p_floor, p_who);
  END IF;
  IF r.code <> 'busy' OR NOT p_wait THEN
    RETURN r;
  END IF;
  PERFORM set_config('synchronous_commit', 'off', true);
  IF l.kind IS DISTINCT FROM p_kind OR p_size > 0 AND l.size IS NULL THEN
    UPDATE {s}.fencelock_lock o SET kind = p_kind, size = nullif(p_size, 0), hold = NULL
      WHERE o.space = p_space AND o.name = p_name;
  END IF;
  -- Mostly it has said so lately: those who come together do not wait for one row.
  IF NOT EXISTS (SELECT FROM {s}.fencelock_client c
    WHERE c.client = p_client AND {s}.fencelock_hears(c.until, t + interval '1 second') AND (p_pid IS NULL OR c.pid = p_pid))
  THEN
    -- Whoever was sent before it was known who listens does not take that back; a process that listened before is nobody's any more. Of
    -- whom nothing is known yet the process by which he comes speaks until his first sign of life: he may be killed before it. (Behind a
    -- pooler it is others' too, and goes on without him.)
    INSERT INTO {s}.fencelock_client AS c VALUES (p_client, {s}.fencelock_heard_until(t), coalesce(p_pid, pg_backend_pid()))
      ON CONFLICT (client) DO UPDATE SET until = excluded.until,
        pid = CASE WHEN {s}.fencelock_alive(c.until, c.pid, t) THEN coalesce(p_pid, c.pid) ELSE excluded.pid END;
  END IF;
  INSERT INTO {s}.fencelock_waiter (space, name, hold, claim, take, ttl, floor, client, since, who)
    VALUES (p_space, p_name, p_hold, p_claim, p_take, p_ttl, p_floor, p_client, t, p_who)
    ON CONFLICT (space, name, hold) DO NOTHING;
  r.code := 'queued';
  RETURN r;
END
$f$;

-- A waiter's look: its turn may have come. It creates nothing (SAFETY A2), and while it has to wait writes nothing but that its client
-- (`p_client`; NULL: that one listens, and says so there) lives. Who was not told that his turn has come is only told so. What is of another
-- kind by now than he waits for has no place of his.
--
-- *Invariant:* what it takes it takes for one who lives, and goes on: whoever is killed or stopped after he has sent it would have the lock
-- for a whole lease. So those who look now and then take nothing; and who was told has an end, after which his look does nothing, and is
-- granted nothing if who listens for him (`p_pid`) is gone.
CREATE FUNCTION {s}.fencelock_refresh(p_space text, p_name text, p_hold uuid, p_ttl bigint, p_not_after bigint, p_pid integer, p_told boolean, p_once boolean DEFAULT false, p_client uuid DEFAULT NULL)
RETURNS {s}.fencelock_reply
LANGUAGE plpgsql SET enable_seqscan = off SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  l {s}.fencelock_lock;
  w {s}.fencelock_waiter;
  r {s}.fencelock_reply;
  t timestamptz;
  waits boolean;
BEGIN
  SELECT * INTO l FROM {s}.fencelock_lock o WHERE o.space = p_space AND o.name = p_name;
  SELECT * INTO w FROM {s}.fencelock_waiter q WHERE q.space = p_space AND q.name = p_name AND q.hold = p_hold;
  waits := FOUND AND l.kind = {s}.fencelock_kind(w.claim);
  t := clock_timestamp();
  IF waits AND NOT coalesce({s}.fencelock_is_skewed(l, t), false)
    AND NOT {s}.fencelock_fits(l, t, false, p_hold, w.claim, w.take)
  THEN
    IF p_client IS NOT NULL THEN
      -- Four times a second at most; and whose ears were ended is not taken for dead with them. Whose client is forgotten says that anew
      -- (`fencelock_beat`).
      PERFORM set_config('synchronous_commit', 'off', true);
      UPDATE {s}.fencelock_client c SET until = {s}.fencelock_heard_until(t), pid = CASE WHEN {s}.fencelock_is_there(c.pid) THEN c.pid END
        WHERE c.client = p_client
          AND (c.until < {s}.fencelock_heard_until(t) - interval '250 milliseconds' OR NOT {s}.fencelock_alive(c.until, c.pid, t));
    END IF;
    RETURN {s}.fencelock_tell('queued', l, t, w.ticket);
  END IF;
  IF NOT p_told THEN
    r.code := 'turn';
    r.now := {s}.fencelock_us(t);
    RETURN r;
  END IF;
  PERFORM {s}.fencelock_tables();
  l := {s}.fencelock_take(p_space, p_name, false, p_once);
  t := clock_timestamp();
  IF l.space IS NULL THEN
    r.code := CASE WHEN EXISTS (SELECT FROM {s}.fencelock_lock o WHERE o.space = p_space AND o.name = p_name)
      THEN 'locked' ELSE 'gone' END;
    r.now := {s}.fencelock_us(t);
    RETURN r;
  END IF;
  r.now := {s}.fencelock_us(t);
  IF r.now > p_not_after THEN
    r.code := 'past';
    RETURN r;
  END IF;
  l := {s}.fencelock_settle(l, t);
  r := {s}.fencelock_find(l, t, p_hold, p_ttl);
  IF r.code IS NOT NULL THEN
    RETURN r;
  END IF;
  -- It may be gone since.
  SELECT * INTO w FROM {s}.fencelock_waiter q WHERE q.space = p_space AND q.name = p_name AND q.hold = p_hold;
  IF NOT FOUND OR l.kind IS DISTINCT FROM {s}.fencelock_kind(w.claim) THEN
    RETURN {s}.fencelock_tell('gone', l, t, 0);
  END IF;
  IF NOT {s}.fencelock_fits(l, t, true, p_hold, w.claim, w.take) THEN
    RETURN {s}.fencelock_tell('queued', l, t, w.ticket);
  END IF;
  IF NOT {s}.fencelock_is_there(p_pid) THEN
    r.code := 'unheard';
    r.now := {s}.fencelock_us(t);
    RETURN r;
  END IF;
  DELETE FROM {s}.fencelock_waiter q WHERE q.space = p_space AND q.name = p_name AND q.ticket = w.ticket;
  RETURN {s}.fencelock_give(l, t, p_hold, l.kind, w.claim, w.take, coalesce(l.size, 0), w.ttl, w.floor, w.who);
END
$f$;

-- Ends the hold of this id and token, and no other; without a token a place in the queue, too.
CREATE FUNCTION {s}.fencelock_release(p_space text, p_name text, p_hold uuid, p_token bigint, p_once boolean DEFAULT false) RETURNS {s}.fencelock_reply
LANGUAGE plpgsql SET enable_seqscan = off SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  l {s}.fencelock_lock;
  r {s}.fencelock_reply;
  t timestamptz;
  had boolean := false;
BEGIN
  -- Without a token it is one of many.
  l := {s}.fencelock_take(p_space, p_name, true, p_once OR p_token IS NULL);
  IF l.space IS NULL THEN
    r.code := CASE WHEN EXISTS (SELECT FROM {s}.fencelock_lock o WHERE o.space = p_space AND o.name = p_name)
      THEN 'locked' ELSE 'gone' END;
    r.now := {s}.fencelock_us(clock_timestamp());
    RETURN r;
  END IF;
  t := clock_timestamp();
  IF l.hold = p_hold AND (p_token IS NULL OR l.fence = p_token) THEN
    had := l.until > t;
    l.hold := NULL;
    UPDATE {s}.fencelock_lock o SET hold = NULL WHERE o.space = p_space AND o.name = p_name;
  ELSE
    IF l.kind IN ('rw_lock', 'semaphore') THEN
      l := {s}.fencelock_settle(l, t);
      DELETE FROM {s}.fencelock_holder h WHERE h.ctid = ANY (ARRAY(
        SELECT o.ctid FROM {s}.fencelock_holder o
          WHERE o.space = p_space AND o.name = p_name AND o.hold = p_hold AND (p_token IS NULL OR o.token = p_token)
          FOR UPDATE SKIP LOCKED));
      had := FOUND;
      IF NOT had AND EXISTS (SELECT FROM {s}.fencelock_holder o
        WHERE o.space = p_space AND o.name = p_name AND o.hold = p_hold AND (p_token IS NULL OR o.token = p_token))
      THEN
        r.code := 'locked';
        r.now := {s}.fencelock_us(t);
        RETURN r;
      END IF;
    END IF;
    IF p_token IS NULL THEN
      DELETE FROM {s}.fencelock_waiter q WHERE q.space = p_space AND q.name = p_name AND q.hold = p_hold;
    END IF;
  END IF;
  IF NOT had THEN
    PERFORM set_config('synchronous_commit', 'off', true);
  END IF;
  PERFORM {s}.fencelock_ring(l, t);
  IF had THEN
    r.code := 'done';
    r.now := {s}.fencelock_us(t);
    RETURN r;
  END IF;
  RETURN {s}.fencelock_tell('gone', l, t, 0);
END
$f$;

-- Attempts that nobody makes any more: the hold of each ends, or its place. One letter for each: d it is done, l somebody keeps a row of it.
--
-- *Invariant (SAFETY A3):* an attempt that is about to be granted a lock that was never there is found, too. That is asked before any row is taken:
-- nobody's row is kept for longer by it.
CREATE FUNCTION {s}.fencelock_withdraw(p_space text, p_names text[], p_holds uuid[]) RETURNS text LANGUAGE plpgsql SET enable_seqscan = off SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  was text := current_setting('synchronous_commit');
  r {s}.fencelock_reply;
  had boolean := false;
  kept boolean[];
BEGIN
  -- What is made and undone by that is no reason to wait for the disk.
  PERFORM set_config('synchronous_commit', 'off', true);
  FOR i IN 1 .. coalesce(array_length(p_names, 1), 0) LOOP
    kept[i] := NOT EXISTS (SELECT FROM {s}.fencelock_lock o WHERE o.space = p_space AND o.name = p_names[i])
      AND {s}.fencelock_is_coming(p_space, p_names[i]);
  END LOOP;
  FOR i IN 1 .. coalesce(array_length(p_names, 1), 0) LOOP
    CONTINUE WHEN kept[i];
    r := {s}.fencelock_release(p_space, p_names[i], p_holds[i], NULL);
    had := had OR r.code = 'done';
    kept[i] := r.code = 'locked';
  END LOOP;
  IF had THEN
    PERFORM set_config('synchronous_commit', was, true);
  END IF;
  RETURN (SELECT string_agg(CASE WHEN it THEN 'l' ELSE 'd' END, '' ORDER BY at) FROM unnest(kept) WITH ORDINALITY AS them (it, at));
END
$f$;

-- One letter for each: e extended, g gone, u nothing is known. What is over is not revived.
CREATE FUNCTION {s}.fencelock_renew(p_space text, p_names text[], p_holds uuid[], p_tokens bigint[], p_ttls bigint[]) RETURNS text
LANGUAGE plpgsql SET enable_seqscan = off SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  l {s}.fencelock_lock;
  h {s}.fencelock_holder;
  t timestamptz;
  answers text := '';
BEGIN
  FOR i IN 1 .. coalesce(array_length(p_names, 1), 0) LOOP
    SELECT * INTO l FROM {s}.fencelock_lock o WHERE o.space = p_space AND o.name = p_names[i];
    IF l.hold = p_holds[i] AND l.fence = p_tokens[i] THEN
      SELECT * INTO l FROM {s}.fencelock_lock o WHERE o.space = p_space AND o.name = p_names[i]
        FOR NO KEY UPDATE SKIP LOCKED;
      IF NOT FOUND THEN
        answers := answers || 'u';
        CONTINUE;
      END IF;
      t := clock_timestamp();
      IF l.hold = p_holds[i] AND l.fence = p_tokens[i] AND l.until > t THEN
        UPDATE {s}.fencelock_lock o SET ttl = greatest(o.ttl, p_ttls[i]),
            until = greatest(least(o.until, t + {s}.fencelock_span(greatest(o.ttl, p_ttls[i]))), t + {s}.fencelock_span(p_ttls[i]))
          WHERE o.space = p_space AND o.name = p_names[i];
        answers := answers || 'e';
        CONTINUE;
      END IF;
      -- It is over; or it has become a reader's meanwhile, which is written elsewhere.
    END IF;
    SELECT * INTO h FROM {s}.fencelock_holder o
      WHERE o.space = p_space AND o.name = p_names[i] AND o.hold = p_holds[i] FOR NO KEY UPDATE SKIP LOCKED;
    t := clock_timestamp();
    IF FOUND THEN
      IF h.token = p_tokens[i] AND h.until > t THEN
        UPDATE {s}.fencelock_holder o SET ttl = greatest(o.ttl, p_ttls[i]),
            until = greatest(least(o.until, t + {s}.fencelock_span(greatest(o.ttl, p_ttls[i]))), t + {s}.fencelock_span(p_ttls[i]))
          WHERE o.space = p_space AND o.name = p_names[i] AND o.hold = p_holds[i];
        answers := answers || 'e';
      ELSE
        answers := answers || 'g';
      END IF;
    ELSIF EXISTS (SELECT FROM {s}.fencelock_holder o
      WHERE o.space = p_space AND o.name = p_names[i] AND o.hold = p_holds[i])
    THEN
      answers := answers || 'u';
    ELSE
      answers := answers || 'g';
    END IF;
  END LOOP;
  PERFORM {s}.fencelock_durably();
  RETURN answers;
END
$f$;

-- A place in the queue that nobody waits in any more. A hold it leaves alone: whoever says so may have been granted it meanwhile. One that
-- is gone keeps the lock's row from nobody: it is looked for first.
CREATE FUNCTION {s}.fencelock_quit(p_space text, p_name text, p_hold uuid) RETURNS {s}.fencelock_reply
LANGUAGE plpgsql SET enable_seqscan = off SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  l {s}.fencelock_lock;
  r {s}.fencelock_reply;
  t timestamptz;
BEGIN
  IF NOT EXISTS (SELECT FROM {s}.fencelock_waiter q WHERE q.space = p_space AND q.name = p_name AND q.hold = p_hold) THEN
    r.code := 'done';
    RETURN r;
  END IF;
  l := {s}.fencelock_take(p_space, p_name, true);
  r.code := CASE WHEN l.space IS NOT NULL THEN 'done' ELSE 'locked' END;
  IF l.space IS NOT NULL THEN
    PERFORM set_config('synchronous_commit', 'off', true);
    DELETE FROM {s}.fencelock_waiter q WHERE q.space = p_space AND q.name = p_name AND q.hold = p_hold;
    t := clock_timestamp();
    PERFORM {s}.fencelock_ring(l, t);
  END IF;
  RETURN r;
END
$f$;

-- A client that waits lives on. `pid`: of the process that listens for it; NULL: none does now. Now and then it asks
-- what it waits for by what is written here.
CREATE FUNCTION {s}.fencelock_beat(p_client uuid, p_pid integer, p_space text, p_places boolean)
RETURNS TABLE (name text, hold uuid) LANGUAGE plpgsql SET enable_seqscan = off SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  INSERT INTO {s}.fencelock_client AS c VALUES (p_client, {s}.fencelock_heard_until(clock_timestamp()), p_pid)
    ON CONFLICT (client) DO UPDATE SET until = excluded.until, pid = excluded.pid;
  IF p_places THEN
    RETURN QUERY SELECT q.name, q.hold FROM {s}.fencelock_waiter q WHERE q.client = p_client AND q.space = p_space;
  END IF;
END
$f$;

-- The same hold: a writer's becomes a reader's, under its token. Another one: the hold passes to it, with a fresh token (SAFETY A5).
CREATE FUNCTION {s}.fencelock_exchange(p_space text, p_name text, p_old uuid, p_token bigint, p_new uuid, p_claim text, p_take bigint, p_ttl bigint, p_not_after bigint, p_floor bigint, p_who text)
RETURNS {s}.fencelock_reply LANGUAGE plpgsql SET enable_seqscan = off SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  l {s}.fencelock_lock;
  h {s}.fencelock_holder;
  r {s}.fencelock_reply;
  t timestamptz;
BEGIN
  PERFORM {s}.fencelock_tables();
  l := {s}.fencelock_take(p_space, p_name, false);
  t := clock_timestamp();
  IF l.space IS NULL THEN
    r.code := CASE WHEN EXISTS (SELECT FROM {s}.fencelock_lock o WHERE o.space = p_space AND o.name = p_name)
      THEN 'locked' ELSE 'busy' END;
    r.now := {s}.fencelock_us(t);
    RETURN r;
  END IF;
  l := {s}.fencelock_settle(l, t);
  IF p_old <> p_new THEN
    r := {s}.fencelock_find(l, t, p_new, p_ttl);
    IF r.code IS NOT NULL THEN
      RETURN r;
    END IF;
    IF r.now > p_not_after THEN
      r.code := 'past';
      RETURN r;
    END IF;
  END IF;
  IF l.hold = p_old AND l.fence = p_token AND l.until > t THEN
    h := (l.space, l.name, l.hold, CASE l.kind WHEN 'rw_lock' THEN 'w' ELSE 'm' END, 1, l.fence, l.ttl, l.until, l.since, l.who);
  ELSIF l.kind IN ('rw_lock', 'semaphore') THEN
    SELECT * INTO h FROM {s}.fencelock_holder o
      WHERE o.space = p_space AND o.name = p_name AND o.hold = p_old AND o.token = p_token AND o.until > t;
  END IF;
  IF h.hold IS NULL THEN
    RETURN {s}.fencelock_tell('busy', l, t, 0);
  END IF;
  IF p_old = p_new THEN
    IF l.kind <> 'rw_lock' OR p_claim <> 'r' THEN
      r.code := 'never';
      RETURN r;
    END IF;
    IF h.claim = 'w' THEN
      UPDATE {s}.fencelock_lock o SET hold = NULL WHERE o.space = p_space AND o.name = p_name;
      INSERT INTO {s}.fencelock_holder VALUES (p_space, p_name, p_old, 'r', 1, p_token, greatest(h.ttl, p_ttl),
        greatest(h.until, t + {s}.fencelock_span(p_ttl)), h.since, h.who);
      l.hold := NULL;
      PERFORM {s}.fencelock_ring(l, t);
      r.code := 'done';
      r.number := p_token;
      r.now := {s}.fencelock_us(t);
      r.held := r.now - {s}.fencelock_us(h.since);
      PERFORM {s}.fencelock_durably();
      RETURN r;
    END IF;
    RETURN {s}.fencelock_find(l, t, p_old, p_ttl);
  END IF;
  IF h.claim <> p_claim OR p_claim = 'p' AND h.take <> p_take THEN
    RETURN {s}.fencelock_tell('busy', l, t, 0);
  END IF;
  IF h.claim IN ('r', 'p') THEN
    DELETE FROM {s}.fencelock_holder o WHERE o.ctid = (
      SELECT i.ctid FROM {s}.fencelock_holder i WHERE i.space = p_space AND i.name = p_name AND i.hold = p_old FOR UPDATE SKIP LOCKED);
    IF NOT FOUND THEN
      r.code := 'locked';
      RETURN r;
    END IF;
  END IF;
  -- Without a note of its own it keeps the one that was there: host and process are the first two words.
  IF p_who ~ '^\S+ \S+ $' THEN
    p_who := p_who || regexp_replace(h.who, '^\S+ \S+ ', '');
  END IF;
  RETURN {s}.fencelock_give(l, t, p_new, l.kind, p_claim, h.take, coalesce(l.size, 0), p_ttl, p_floor, p_who);
END
$f$;
