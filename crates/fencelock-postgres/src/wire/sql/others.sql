-- What is looked at, mended, and kept beside locks.

-- The lock itself, then who holds it, then who waits, in their order. It makes no record.
CREATE FUNCTION {s}.fencelock_inspect(p_space text, p_name text) RETURNS SETOF {s}.fencelock_reply LANGUAGE plpgsql STABLE SET enable_seqscan = off SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  l {s}.fencelock_lock;
  r {s}.fencelock_reply;
  t timestamptz := clock_timestamp();
BEGIN
  SELECT * INTO l FROM {s}.fencelock_lock o WHERE o.space = p_space AND o.name = p_name;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  r.code := 'lock';
  r.who := l.kind;
  r.size := l.size;
  r.number := l.fence;
  r.now := {s}.fencelock_us(t);
  r.held := (SELECT 1 FROM {s}.fencelock_cell v WHERE v.space = p_space AND v.name = p_name AND v.value IS NOT NULL);
  RETURN NEXT r;
  r := NULL;
  IF l.key IS NOT NULL THEN
    RETURN QUERY SELECT * FROM {s}.fencelock_bearers(l, t);
    RETURN;
  END IF;
  IF l.hold IS NOT NULL AND l.until > t THEN
    r := {s}.fencelock_tell('holder', l, t, 0);
    RETURN NEXT r;
  END IF;
  RETURN QUERY SELECT 'holder', NULL::bigint, {s}.fencelock_us(t), NULL::bigint, {s}.fencelock_us(h.until) - {s}.fencelock_us(t),
      h.hold, h.claim, h.take, l.size, h.token, h.who, {s}.fencelock_us(t) - {s}.fencelock_us(h.since)
    FROM {s}.fencelock_holder h WHERE h.space = p_space AND h.name = p_name AND h.until > t ORDER BY h.since, h.token;
  RETURN QUERY SELECT 'waiter', NULL::bigint, {s}.fencelock_us(t), NULL::bigint, NULL::bigint,
      q.hold, q.claim, q.take, l.size, NULL::bigint, q.who, {s}.fencelock_us(t) - {s}.fencelock_us(q.since)
    FROM {s}.fencelock_waiter q JOIN {s}.fencelock_client c ON c.client = q.client
    WHERE q.space = p_space AND q.name = p_name AND {s}.fencelock_hears(c.until, t) ORDER BY q.ticket;
END
$f$;

-- Held, or waited for.
CREATE FUNCTION {s}.fencelock_used(l {s}.fencelock_lock, t timestamptz) RETURNS boolean LANGUAGE sql STABLE AS $f$
  SELECT l.hold IS NOT NULL AND l.until > t
    OR l.key IS NOT NULL AND {s}.fencelock_borne(l)
    OR EXISTS (SELECT FROM {s}.fencelock_holder h WHERE h.space = l.space AND h.name = l.name AND h.until > t)
    OR EXISTS (SELECT FROM {s}.fencelock_waiter q JOIN {s}.fencelock_client c ON c.client = q.client
      WHERE q.space = l.space AND q.name = l.name AND {s}.fencelock_hears(c.until, t))
$f$;

-- Breaks the hold of this token, and no other.
CREATE FUNCTION {s}.fencelock_force(p_space text, p_name text, p_token bigint) RETURNS {s}.fencelock_reply
LANGUAGE plpgsql SET enable_seqscan = off SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  l {s}.fencelock_lock;
  r {s}.fencelock_reply;
  t timestamptz := clock_timestamp();
  h uuid;
BEGIN
  SELECT * INTO l FROM {s}.fencelock_lock o WHERE o.space = p_space AND o.name = p_name;
  IF l.key IS NOT NULL THEN
    r := {s}.fencelock_ask_back(l, p_token);
    IF r.code IS NOT NULL THEN
      RETURN r;
    END IF;
  ELSIF l.hold IS NOT NULL AND l.fence = p_token AND l.until > t THEN
    h := l.hold;
  ELSE
    SELECT o.hold INTO h FROM {s}.fencelock_holder o
      WHERE o.space = p_space AND o.name = p_name AND o.token = p_token AND o.until > t;
  END IF;
  IF h IS NULL THEN
    RETURN {s}.fencelock_tell('gone', l, t, 0);
  END IF;
  RETURN {s}.fencelock_release(p_space, p_name, h, p_token);
END
$f$;

-- Compare and set of a semaphore's size (SAFETY K4). A late copy would undo what came after it, so it has an end.
CREATE FUNCTION {s}.fencelock_resize(p_space text, p_name text, p_from bigint, p_to bigint, p_not_after bigint)
RETURNS {s}.fencelock_reply LANGUAGE plpgsql SET enable_seqscan = off SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  l {s}.fencelock_lock;
  r {s}.fencelock_reply;
  t timestamptz;
  w record;
BEGIN
  PERFORM {s}.fencelock_tables();
  r.now := {s}.fencelock_us(clock_timestamp());
  r.code := 'past';
  IF r.now > p_not_after THEN
    RETURN r;
  END IF;
  INSERT INTO {s}.fencelock_lock (space, name, fence) SELECT p_space, p_name, greatest(m.floor, {s}.fencelock_us(clock_timestamp())) FROM {s}.fencelock_meta m
    WHERE m.one AND NOT EXISTS (SELECT FROM {s}.fencelock_lock o WHERE o.space = p_space AND o.name = p_name)
    ON CONFLICT DO NOTHING;
  l := {s}.fencelock_take(p_space, p_name, false);
  t := clock_timestamp();
  IF l.space IS NULL THEN
    r.now := {s}.fencelock_us(t);
    r.code := 'locked';
    RETURN r;
  END IF;
  l := {s}.fencelock_settle(l, t);
  r.now := {s}.fencelock_us(t);
  IF r.now > p_not_after THEN
    RETURN r;
  END IF;
  IF l.kind <> 'semaphore' AND {s}.fencelock_lives(l, t, true) THEN
    r.code := 'kind';
    r.who := l.kind;
    RETURN r;
  END IF;
  IF l.kind = 'semaphore' AND l.size NOT IN (p_from, p_to) THEN
    r.code := 'size';
    r.size := l.size;
    RETURN r;
  END IF;
  l.kind := 'semaphore';
  l.size := p_to;
  -- As if it had been used now: a size is kept for as long as what was used.
  UPDATE {s}.fencelock_lock o SET kind = l.kind, size = l.size, hold = NULL, key = NULL, fence = greatest(o.fence, r.now)
    WHERE o.space = p_space AND o.name = p_name;
  -- Who wants more than there is, or wanted something else, has no place any more, and is told to look.
  FOR w IN DELETE FROM {s}.fencelock_waiter q WHERE q.space = p_space AND q.name = p_name AND (q.take > p_to OR q.claim <> 'p')
    RETURNING q.client, q.hold
  LOOP
    PERFORM {s}.fencelock_word(w.client, p_space, p_name, w.hold);
  END LOOP;
  PERFORM {s}.fencelock_ring(l, t);
  r.code := 'done';
  RETURN r;
END
$f$;

-- A value with its version. `kind`: it is a live lock.
CREATE TYPE {s}.fencelock_value AS (code text, version bigint, value bytea, kind text);

CREATE FUNCTION {s}.fencelock_load(p_space text, p_name text) RETURNS {s}.fencelock_value LANGUAGE plpgsql STABLE SET enable_seqscan = off SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  l {s}.fencelock_lock;
  v {s}.fencelock_value;
BEGIN
  SELECT * INTO l FROM {s}.fencelock_lock o WHERE o.space = p_space AND o.name = p_name;
  IF l.kind <> 'cell' AND {s}.fencelock_lives(l, clock_timestamp(), false) THEN
    v.code := 'kind';
    v.kind := l.kind;
    RETURN v;
  END IF;
  SELECT 'value', c.version, c.value INTO v.code, v.version, v.value FROM {s}.fencelock_cell c
    WHERE c.space = p_space AND c.name = p_name;
  v.code := 'value';
  v.version := coalesce(v.version, 0);
  RETURN v;
END
$f$;

-- Writes if the version is the expected one. What was written under this nonce is asked first, whatever stands there now (SAFETY A6).
CREATE FUNCTION {s}.fencelock_swap(p_space text, p_name text, p_expected bigint, p_nonce uuid, p_value bytea)
RETURNS {s}.fencelock_value LANGUAGE plpgsql SET enable_seqscan = off SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  l {s}.fencelock_lock;
  v {s}.fencelock_value;
  t timestamptz;
BEGIN
  PERFORM {s}.fencelock_tables();
  INSERT INTO {s}.fencelock_lock (space, name, fence) SELECT p_space, p_name, greatest(m.floor, {s}.fencelock_us(clock_timestamp())) FROM {s}.fencelock_meta m
    WHERE m.one AND NOT EXISTS (SELECT FROM {s}.fencelock_lock o WHERE o.space = p_space AND o.name = p_name)
    ON CONFLICT DO NOTHING;
  l := {s}.fencelock_take(p_space, p_name, false);
  t := clock_timestamp();
  IF l.space IS NULL THEN
    v.code := 'locked';
    RETURN v;
  END IF;
  SELECT 'done', w.version INTO v.code, v.version FROM {s}.fencelock_write w
    WHERE w.space = p_space AND w.name = p_name AND w.nonce = p_nonce;
  IF FOUND THEN
    -- A repeat waits for the disk and the standbys, too: its row lock is written there.
    PERFORM {s}.fencelock_durably();
    RETURN v;
  END IF;
  l := {s}.fencelock_settle(l, t);
  IF l.kind <> 'cell' AND {s}.fencelock_lives(l, t, true) THEN
    v.code := 'kind';
    v.kind := l.kind;
    RETURN v;
  END IF;
  SELECT 'value', c.version, c.value INTO v.code, v.version, v.value FROM {s}.fencelock_cell c
    WHERE c.space = p_space AND c.name = p_name;
  IF coalesce(v.version, 0) <> p_expected THEN
    v.code := 'value';
    v.version := coalesce(v.version, 0);
    RETURN v;
  END IF;
  v.code := 'done';
  v.version := greatest(l.fence + 1, {s}.fencelock_us(t));
  v.value := NULL;
  IF l.kind <> 'cell' THEN
    DELETE FROM {s}.fencelock_waiter q WHERE q.space = p_space AND q.name = p_name;
  END IF;
  UPDATE {s}.fencelock_lock o SET kind = 'cell', size = NULL, fence = v.version, hold = NULL, key = NULL
    WHERE o.space = p_space AND o.name = p_name;
  INSERT INTO {s}.fencelock_cell VALUES (p_space, p_name, v.version, p_value)
    ON CONFLICT (space, name) DO UPDATE SET version = excluded.version, value = excluded.value;
  DELETE FROM {s}.fencelock_write w
    WHERE w.space = p_space AND w.name = p_name AND (w.at < t - interval '1 minute' OR w.at > t + interval '1 minute');
  INSERT INTO {s}.fencelock_write VALUES (p_space, p_name, p_nonce, v.version, t);
  PERFORM {s}.fencelock_durably();
  RETURN v;
END
$f$;

-- Nobody has it, waits for it, or has used it for so long.
CREATE FUNCTION {s}.fencelock_is_idle(l {s}.fencelock_lock, t timestamptz, p_retention bigint) RETURNS boolean LANGUAGE plpgsql AS $f$
BEGIN
  RETURN l.fence < {s}.fencelock_us(t) - p_retention
    AND (l.hold IS NULL OR l.until IS NULL OR l.until < t - {s}.fencelock_span(p_retention))
    AND NOT EXISTS (SELECT FROM {s}.fencelock_holder h WHERE h.space = l.space AND h.name = l.name)
    AND NOT EXISTS (SELECT FROM {s}.fencelock_waiter q WHERE q.space = l.space AND q.name = l.name)
    AND NOT (l.key IS NOT NULL AND {s}.fencelock_borne(l))
    AND NOT EXISTS (SELECT FROM {s}.fencelock_cell v WHERE v.space = l.space AND v.name = l.name AND v.value IS NOT NULL);
END
$f$;

-- What the dead have left goes. A transaction of its own, and clients last: whoever comes to life again has that row to write, and waits for
-- no look.
CREATE FUNCTION {s}.fencelock_reap() RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  t timestamptz := clock_timestamp();
  dead tid[];
  n bigint;
  gone bigint := 0;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  IF NOT pg_try_advisory_xact_lock(7378697629484716395) THEN
    RETURN 0;
  END IF;
  -- Whatever is waited for is waited for while no row is kept.
  PERFORM {s}.fencelock_tables();
  dead := ARRAY(SELECT o.ctid FROM {s}.fencelock_waiter o
    WHERE NOT EXISTS (SELECT FROM {s}.fencelock_client c WHERE c.client = o.client AND c.until > t - interval '30 seconds')
    LIMIT 1000 FOR UPDATE OF o SKIP LOCKED);
  -- Its client may have come to life again.
  DELETE FROM {s}.fencelock_waiter q WHERE q.ctid = ANY (dead)
    AND NOT EXISTS (SELECT FROM {s}.fencelock_client c WHERE c.client = q.client AND c.until > t - interval '30 seconds');
  GET DIAGNOSTICS n = ROW_COUNT;
  gone := gone + n;
  DELETE FROM {s}.fencelock_holder h WHERE h.ctid = ANY (ARRAY(
    SELECT o.ctid FROM {s}.fencelock_holder o WHERE o.until < t - interval '1 minute' LIMIT 1000 FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS n = ROW_COUNT;
  gone := gone + n;
  DELETE FROM {s}.fencelock_bearer b WHERE b.ctid = ANY (ARRAY(
    SELECT o.ctid FROM {s}.fencelock_bearer o WHERE o.since < t - interval '1 minute' AND NOT EXISTS (SELECT FROM pg_stat_get_activity(o.pid))
      LIMIT 1000 FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS n = ROW_COUNT;
  gone := gone + n;
  DELETE FROM {s}.fencelock_client c WHERE c.ctid = ANY (ARRAY(
    SELECT o.ctid FROM {s}.fencelock_client o WHERE o.until < t - interval '1 minute' LIMIT 1000 FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS n = ROW_COUNT;
  RETURN gone + n;
END
$f$;

-- What nobody has used for so long goes. Tokens go on above those that are forgotten (SAFETY T1). One at a time, for all who share the
-- tables; nobody waits for it.
CREATE FUNCTION {s}.fencelock_clean(p_retention bigint) RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  t timestamptz := clock_timestamp();
  idle tid[];
  gone bigint;
  top bigint;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  IF NOT pg_try_advisory_xact_lock(7378697629484716395) THEN
    RETURN 0;
  END IF;
  -- Looked for first, however long that takes: a row that is kept meanwhile would be Busy to whoever tries.
  idle := ARRAY(SELECT o.ctid FROM {s}.fencelock_lock o
    WHERE o.fence < {s}.fencelock_us(t) - p_retention AND {s}.fencelock_is_idle(o, t, p_retention) LIMIT 100);
  idle := ARRAY(SELECT o.ctid FROM {s}.fencelock_lock o WHERE o.ctid = ANY (idle) FOR UPDATE SKIP LOCKED);
  -- *Invariant:* what is said of them by other tables is read when they are locked, and not before: somebody may have come to wait.
  WITH deleted AS (
    DELETE FROM {s}.fencelock_lock o WHERE o.ctid = ANY (idle) AND {s}.fencelock_is_idle(o, t, p_retention)
      RETURNING o.space, o.name, o.fence
  ), cells AS (
    DELETE FROM {s}.fencelock_cell v USING deleted d WHERE v.space = d.space AND v.name = d.name
  ), writes AS (
    DELETE FROM {s}.fencelock_write w USING deleted d WHERE w.space = d.space AND w.name = d.name
  )
  SELECT count(*), max(d.fence) INTO gone, top FROM deleted d;
  IF gone > 0 THEN
    UPDATE {s}.fencelock_meta SET floor = greatest(floor, top);
  END IF;
  RETURN gone;
END
$f$;
