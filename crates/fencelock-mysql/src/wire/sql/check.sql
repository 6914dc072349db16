-- Comes before what is printed makes anything: that makes what is missing, and nothing of another version is there. No two do so at once.
CREATE PROCEDURE fencelock_check() SQL SECURITY INVOKER
BEGIN
  DECLARE v_version, v_shed INT;
  DECLARE v_sort, v_theirs VARCHAR(64);
  DECLARE v_what VARCHAR(128);
  IF NOT COALESCE(GET_LOCK({turn}, 20), FALSE) THEN
    SET v_what = 'somebody else makes the tables: try again';
  END IF;
  IF EXISTS (SELECT 1 FROM information_schema.tables t WHERE t.table_schema = DATABASE() AND t.table_name = 'fencelock_meta') THEN
    SELECT m.version INTO v_version FROM fencelock_meta m WHERE m.one = 1;
    IF v_version = {version} THEN
      SELECT m.shed, m.sort INTO v_shed, v_sort FROM fencelock_meta m WHERE m.one = 1;
    END IF;
  END IF;
  SELECT c.collation_name INTO v_theirs FROM information_schema.columns c
    WHERE c.table_schema = DATABASE() AND c.table_name = 'shedlock' AND c.column_name = 'name';
  IF v_version <> {version} THEN
    SET v_what = CONCAT('the tables of fencelock are of version ', v_version, ', and this is version {version}: nothing was changed');
  ELSEIF EXISTS (
    SELECT 1 FROM information_schema.routines r WHERE r.routine_schema = DATABASE() AND LEFT(r.routine_name, 10) = 'fencelock_'
      AND r.routine_name <> 'fencelock_check' AND IF(LEFT(r.routine_name, 15) = 'fencelock_shed_',
        {shedlock} AND r.routine_comment <> '{shed_comment}', r.routine_comment <> '{comment}'))
  THEN
    SET v_what = 'procedures fencelock_* of another version are there: drop them first';
  ELSEIF {shedlock} AND (v_shed <> {shed_version} OR v_sort <> '{sort}') THEN
    SET v_what = CONCAT('what is there for ShedLock is of version ', v_shed, ', ', v_sort, ', and this is {shed_version}, {sort}');
  ELSEIF {shedlock} AND v_theirs <> '{sort}' THEN
    SET v_what = CONCAT('shedlock.name is ', v_theirs, ', and this {sort}: print it by an account that may read shedlock');
  END IF;
  IF v_what IS NOT NULL THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = v_what;
  END IF;
END
