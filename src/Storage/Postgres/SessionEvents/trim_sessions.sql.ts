/**
 * Removes events from before a time, in epoch milliseconds, the oldest first. It visits `portion` of them, and removes
 * those before them in their histories too. Returns how many were removed. One node at a time does this, by the
 * advisory lock `CWKE`.
 *
 * The scan starts at the position `events`, so that events that were removed while a snapshot is held are not visited
 * again. The position stays 20 minutes behind the clock of the database. A node whose clock is behind may append an
 * event from before the position. So an append of events that are 10 minutes old leaves a row `late events` with their
 * time, and the next scan starts there. The difference of the two is time for the append to commit.
 *
 * If the clock of the database was set back, the scan starts at the oldest event.
 */
export const trimSessions = `
CREATE FUNCTION causeway.trim_sessions(before bigint, portion integer) RETURNS bigint
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $function$
DECLARE
  newest bigint := (extract(epoch FROM clock_timestamp()) * 1000)::bigint - 1200000;
  begun record;
  late_ids bigint[];
  oldest_late bigint;
  first bigint;
  visited integer;
  last bigint;
  histories bigint[];
  seqs bigint[];
  due record;
  trimmed_seq bigint;
  up_to bigint;
  dropped bigint;
  dropped_bytes bigint;
  total bigint := 0;
BEGIN
  IF NOT pg_try_advisory_xact_lock(1129794373) THEN RETURN 0; END IF;
  SELECT p.id, p.up_to INTO begun FROM causeway.positions p WHERE p.name = 'events' ORDER BY p.id DESC LIMIT 1;
  SELECT array_agg(p.id), min(p.up_to) INTO late_ids, oldest_late
  FROM causeway.positions p WHERE p.name = 'late events';
  first := least(CASE WHEN begun.up_to > newest THEN 0 ELSE begun.up_to END, oldest_late - 1);
  SELECT count(*), max(o.timestamp), array_agg(o.history), array_agg(o.seq) INTO visited, last, histories, seqs
  FROM (
    SELECT e.history, e.seq, e.timestamp FROM causeway.events e
    WHERE e.timestamp > first AND e.timestamp < before ORDER BY e.timestamp LIMIT portion
  ) o;
  FOR due IN
    SELECT o.history, min(o.seq) AS first_seq, max(o.seq) AS last_seq
    FROM unnest(histories, seqs) o(history, seq) JOIN causeway.histories h ON h.id = o.history
    GROUP BY o.history, h.session ORDER BY h.session
  LOOP
    SELECT h.trimmed INTO trimmed_seq FROM causeway.histories h WHERE h.id = due.history FOR UPDATE;
    CONTINUE WHEN NOT FOUND;
    trimmed_seq := least(trimmed_seq, due.first_seq - 1);
    -- An append may have removed them since the scan.
    SELECT max(e.seq) INTO up_to FROM causeway.events e
    WHERE e.history = due.history AND e.seq > trimmed_seq AND e.seq <= due.last_seq AND e.timestamp < before;
    CONTINUE WHEN up_to IS NULL;
    -- An event is not newer than those after it, whatever the clock said.
    WITH gone AS (
      DELETE FROM causeway.events d WHERE d.history = due.history AND d.seq > trimmed_seq AND d.seq <= up_to
      RETURNING d.size
    )
    SELECT count(*), coalesce(sum(g.size), 0) INTO dropped, dropped_bytes FROM gone g;
    UPDATE causeway.histories h SET trimmed = greatest(h.trimmed, up_to), bytes = h.bytes - dropped_bytes
    WHERE h.id = due.history;
    -- A receipt that was stored without an event has the number of the last one, which may be removed already.
    DELETE FROM causeway.receipts d WHERE d.history = due.history AND d.seq >= trimmed_seq AND d.seq <= up_to;
    total := total + dropped;
  END LOOP;
  -- Others may have the same time as the last one of a full portion.
  last := least(CASE WHEN visited < portion THEN greatest(first, before - 1) ELSE last - 1 END, newest);
  IF last <> begun.up_to OR late_ids IS NOT NULL THEN
    INSERT INTO causeway.positions (name, id, up_to) VALUES ('events', begun.id + 1, last);
    DELETE FROM causeway.positions p WHERE p.name = 'events' AND p.id = begun.id;
    DELETE FROM causeway.positions p WHERE p.name = 'late events' AND p.id = ANY (late_ids);
  END IF;
  RETURN total;
END
$function$`
