/**
 * Removes commit records that no node asks for any longer. Fences, which have no result, stay for an hour: until then,
 * the last packet that could deliver the group has been dropped by every network. Other records stay for a minute.
 *
 * Scans start at the position, so that records that were removed while a snapshot is held are not visited again. If the
 * clock of the database was set back, the scan starts at the oldest record. One node at a time does this, by the
 * advisory lock `CWKP`. Returns how many of up to `portion` records with a result were removed.
 */
export const pruneCommits = `
CREATE FUNCTION causeway.prune_commits(portion integer) RETURNS integer
LANGUAGE plpgsql
SET enable_seqscan = off
SET jit = off
AS $function$
DECLARE
  newest timestamptz := clock_timestamp();
  newest_fence timestamptz := newest - interval '1 hour';
  current record;
  first timestamptz;
  last timestamptz;
  amount integer;
BEGIN
  IF NOT pg_try_advisory_xact_lock(1129794384) THEN RETURN 0; END IF;
  DELETE FROM causeway.commits c WHERE c.result IS NULL AND c.at < newest_fence;
  newest := newest - interval '1 minute';
  SELECT p.id, p.up_to INTO current FROM causeway.positions p WHERE p.name = 'commits' ORDER BY p.id DESC LIMIT 1;
  first := 'epoch'::timestamptz + current.up_to * interval '1 microsecond';
  IF first > newest THEN first := 'epoch'; END IF;
  SELECT count(*), max(o.at) INTO amount, last FROM (
    SELECT c.at FROM causeway.commits c
    WHERE c.result IS NOT NULL AND c.at > first AND c.at < newest ORDER BY c.at LIMIT portion
  ) o;
  IF amount = 0 THEN RETURN 0; END IF;
  DELETE FROM causeway.commits c WHERE c.result IS NOT NULL AND c.at > first AND c.at <= last;
  INSERT INTO causeway.positions (name, id, up_to)
  VALUES ('commits', current.id + 1, (extract(epoch FROM last) * 1000000)::bigint);
  DELETE FROM causeway.positions p WHERE p.name = 'commits' AND p.id = current.id;
  RETURN amount;
END
$function$`
