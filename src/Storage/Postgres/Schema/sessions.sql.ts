/** The functions of histories of sessions, of their ownership, and of the leases of nodes. */
import { newEpoch, plpgsql, readPosition, without } from "./SqlParts.ts"

/**
 * Renews or creates the lease of a node; unless `always` is true, only if it has ended. Returns how often the lease had
 * ended before it was renewed, by which a node learns that others may have taken its sessions, or NULL if nothing was
 * done. A lease ends as long after its renewal as it says even if the clock of the database is set back.
 */
export const renewLease = plpgsql("renew_lease(node uuid, lease bigint, always boolean) RETURNS bigint")`
DECLARE
  moment timestamptz := clock_timestamp(); ends timestamptz := moment + lease * interval '1 millisecond';
  -- Apart from the column of that name.
  millis bigint := lease; renewed bigint;
BEGIN
  PERFORM FROM causeway.nodes n WHERE n.id = node AND n.expires_at > moment;
  IF FOUND AND NOT always THEN RETURN NULL; END IF;
  INSERT INTO causeway.nodes AS n (id, since, expires_at, renewals, lease) VALUES (node, moment, ends, 1, millis)
  ON CONFLICT (id) DO UPDATE SET
    since = CASE WHEN n.expires_at > moment AND n.since <= moment THEN n.since ELSE moment END,
    lapses = n.lapses + CASE WHEN n.expires_at > moment THEN 0 ELSE 1 END,
    expires_at = ends,
    renewals = n.renewals + 1,
    lease = millis
  RETURNING n.lapses INTO renewed;
  RETURN renewed;
END
`

/**
 * Returns whether a node is gone, as seen by `asking`: its lease has ended, and the lease of `asking` has been valid
 * for as long as the longer lease of both. After an outage of the database, in which all leases end, each node has the
 * time to renew its own.
 */
export const isGone = `
CREATE FUNCTION causeway.is_gone(node uuid, asking uuid, lease bigint) RETURNS boolean
LANGUAGE sql
AS $function$
  SELECT NOT EXISTS (
    SELECT FROM causeway.nodes n WHERE n.id = node AND (
      n.expires_at > clock_timestamp() OR NOT EXISTS (
        SELECT FROM causeway.nodes a WHERE a.id = asking AND a.expires_at > clock_timestamp()
          AND a.since <= clock_timestamp() - greatest(is_gone.lease, n.lease) * interval '1 millisecond'
      )
    )
  )
$function$`

/** SQL for when the newest event of a history `h` was received. It may be removed already. */
export const lastEventAt = `CASE WHEN h.head > 0 THEN coalesce(
  (SELECT e.timestamp FROM causeway.events e WHERE e.history = h.id AND e.seq = h.head), h.active_at) END`

/**
 * Writes to the histories of many sessions in one call. It does what `Storage/Sqlite/SessionEvents/Writer` does, and
 * checks that each session belongs to the node. The writes are ordered by session, and each locks the row of its
 * session first, so that groups of several nodes cannot deadlock.
 *
 * `writes` is a JSON array of them, whose members are the columns of `w` below, and `texts` has the events of all
 * appends one after the other. `node` owns its sessions while its lease of `lease` milliseconds is renewed. A token is
 * the one with which the node owns the session, or null.
 *
 * A history that is opened in another epoch of the database than before gets a new epoch: events at its end that
 * clients have seen may be lost, and their numbers are used again.
 *
 * An append of events that are old already, as of a node whose clock is behind, is reported to `trim_sessions`.
 *
 * Returns a JSON array with the outcome of each write, as `SessionWriter` describes them: null if it was stored.
 */
export const writeSessions = plpgsql(
  `write_sessions(group_id uuid, node uuid, lease bigint, most_events bigint, most_bytes bigint,
    most_receipts integer, writes json, texts text[]) RETURNS text`,
  without("seqscan", "hashjoin")
)`
DECLARE
  results text[] := '{}'; result text; w record;
  -- Events of the appends before the write at hand.
  base integer := 0; h causeway.histories%ROWTYPE; oldest record; kept_from bigint; bytes_left bigint;
  is_allowed boolean; current_epoch text;
  late_from bigint := (extract(epoch FROM clock_timestamp()) * 1000)::bigint - 600000; oldest_late bigint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'causeway.write_sessions needs the isolation level read committed' USING ERRCODE = '0A000';
  END IF;
  FOR w IN
    SELECT * FROM json_to_recordset(writes) r(
      op text, session text, token bigint, epoch text, after bigint, timestamp bigint, count integer, size bigint,
      state text, receipt text, digest text, turn text, revoked text, environment text, deployment text,
      activity integer, at bigint
    )
  LOOP
    result := 'null';
    IF w.op = 'append' THEN
      UPDATE causeway.histories u
      SET head = u.head + w.count, bytes = u.bytes + w.size,
        -- The value that is there is not written again.
        recovery_state = CASE WHEN u.recovery_state IS DISTINCT FROM w.state THEN w.state ELSE u.recovery_state END,
        active_at = greatest(u.active_at, w.at),
        activity = coalesce(w.activity, u.activity)
      WHERE u.session = w.session AND u.epoch = w.epoch AND u.head = w.after
        AND u.owner = node AND u.token = w.token
      RETURNING u.* INTO h;
      IF NOT FOUND THEN
        SELECT * INTO h FROM causeway.histories f WHERE f.session = w.session;
        results := results || CASE
          WHEN NOT FOUND THEN '{"_tag":"OutOfStep","headSeq":null}'
          WHEN h.owner = node AND h.token = w.token THEN concat('{"_tag":"OutOfStep","headSeq":', h.head, '}')
          ELSE '{"_tag":"Elsewhere"}'
        END;
        base := base + w.count;
        CONTINUE;
      END IF;
      IF w.count > 0 THEN
        INSERT INTO causeway.events (history, seq, timestamp, size, text)
        SELECT h.id, w.after + n, w.timestamp, octet_length(texts[base + n]), texts[base + n]
        FROM generate_series(1, w.count) n;
        base := base + w.count;
        IF w.timestamp <= late_from THEN oldest_late := least(oldest_late, w.timestamp); END IF;
        IF h.head - h.trimmed > most_events OR h.bytes > most_bytes THEN
          kept_from := h.trimmed;
          bytes_left := h.bytes;
          FOR oldest IN
            SELECT o.seq, o.size FROM causeway.events o WHERE o.history = h.id AND o.seq > h.trimmed ORDER BY o.seq
          LOOP
            EXIT WHEN oldest.seq = h.head OR NOT (h.head - oldest.seq + 1 > most_events OR bytes_left > most_bytes);
            kept_from := oldest.seq;
            bytes_left := bytes_left - oldest.size;
          END LOOP;
          IF kept_from > h.trimmed THEN
            -- Rows that were removed while a snapshot is held are not visited again. A receipt that was stored without
            -- an event has the number of the last one, which may be removed already.
            DELETE FROM causeway.events d WHERE d.history = h.id AND d.seq > h.trimmed AND d.seq <= kept_from;
            DELETE FROM causeway.receipts d WHERE d.history = h.id AND d.seq >= h.trimmed AND d.seq <= kept_from;
            UPDATE causeway.histories u SET trimmed = kept_from, bytes = bytes_left WHERE u.id = h.id;
          END IF;
        END IF;
      END IF;
      IF w.revoked IS NOT NULL THEN
        DELETE FROM causeway.receipts d WHERE d.history = h.id AND d.id = w.revoked;
      END IF;
      IF w.receipt IS NOT NULL THEN
        INSERT INTO causeway.receipts AS k (history, id, seq, digest, turn)
        VALUES (h.id, w.receipt, h.head, w.digest, w.turn)
        ON CONFLICT (history, id)
        DO UPDATE SET seq = excluded.seq, digest = excluded.digest, turn = excluded.turn, place = DEFAULT;
        DELETE FROM causeway.receipts d WHERE d.history = h.id AND d.id IN (
          SELECT o.id FROM causeway.receipts o WHERE o.history = h.id AND o.seq >= h.trimmed
          ORDER BY o.seq DESC, o.place DESC OFFSET most_receipts
        );
      END IF;
      results := results || result;
      CONTINUE;
    END IF;

    SELECT * INTO h FROM causeway.histories f WHERE f.session = w.session FOR UPDATE;
    IF NOT FOUND AND w.op IN ('open', 'renewEpoch') THEN
      INSERT INTO causeway.histories (session, epoch, active_at) VALUES (w.session, w.epoch, w.at)
      ON CONFLICT (session) DO NOTHING;
      SELECT * INTO h FROM causeway.histories f WHERE f.session = w.session FOR UPDATE;
    END IF;
    is_allowed := CASE
      WHEN h.id IS NULL THEN true
      WHEN w.token IS NOT NULL THEN coalesce(h.owner = node AND h.token = w.token, false)
      ELSE h.owner IS NULL OR h.owner = node OR causeway.is_gone(h.owner, node, lease)
    END;
    IF w.op = 'release' THEN
      UPDATE causeway.histories u SET owner = NULL WHERE u.id = h.id AND u.owner = node AND u.token = w.token;
    ELSIF NOT is_allowed THEN
      result := '{"_tag":"Elsewhere"}';
    ELSIF w.op IN ('open', 'renewEpoch') THEN
      current_epoch := coalesce(current_epoch, causeway.epoch());
      IF h.database_epoch IS DISTINCT FROM current_epoch THEN
        UPDATE causeway.histories u
        SET epoch = CASE
            WHEN u.database_epoch IS NULL THEN u.epoch ELSE ${newEpoch}
          END,
          database_epoch = current_epoch
        WHERE u.id = h.id RETURNING u.* INTO h;
      END IF;
      IF w.op = 'renewEpoch' THEN
        UPDATE causeway.histories u SET epoch = w.epoch WHERE u.id = h.id RETURNING u.* INTO h;
      END IF;
      IF h.owner IS DISTINCT FROM node THEN
        PERFORM causeway.renew_lease(node, lease, false);
        UPDATE causeway.histories u SET owner = node, token = nextval('causeway.session_tokens')
        WHERE u.id = h.id RETURNING u.* INTO h;
      END IF;
      result := json_build_object('_tag', 'Opened', 'token', h.token, 'history', json_build_object(
        'epoch', h.epoch, 'headSeq', h.head, 'trimmedSeq', h.trimmed, 'recoveryState', h.recovery_state,
        'activity', h.activity, 'lastEventAt', ${lastEventAt}
      ));
    ELSIF w.op = 'configure' THEN
      IF w.environment IS NULL AND w.deployment IS NULL THEN
        DELETE FROM causeway.launch_configurations d WHERE d.session = w.session;
      ELSE
        INSERT INTO causeway.launch_configurations (session, environment, deployment)
        VALUES (w.session, w.environment, w.deployment)
        ON CONFLICT (session) DO UPDATE SET environment = excluded.environment, deployment = excluded.deployment;
      END IF;
    ELSE
      DELETE FROM causeway.events d WHERE d.history = h.id;
      DELETE FROM causeway.receipts d WHERE d.history = h.id;
      DELETE FROM causeway.checkpoints d WHERE d.history = h.id;
      DELETE FROM causeway.histories d WHERE d.id = h.id;
      DELETE FROM causeway.launch_configurations d WHERE d.session = w.session;
    END IF;
    results := results || result;
  END LOOP;
  IF oldest_late IS NOT NULL THEN
    -- A unique number, so that no writer waits for another.
    INSERT INTO causeway.positions (name, id, up_to)
    VALUES ('late events', nextval('causeway.session_tokens'), oldest_late);
  END IF;
  INSERT INTO causeway.commits (id, result) VALUES (group_id, concat('[', array_to_string(results, ','), ']'));
  RETURN concat('[', array_to_string(results, ','), ']');
END
`

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
export const trimSessions = plpgsql(
  `trim_sessions(before bigint, portion integer) RETURNS bigint`,
  without("seqscan", "bitmapscan", "hashjoin", "mergejoin")
)`
DECLARE
  newest bigint := (extract(epoch FROM clock_timestamp()) * 1000)::bigint - 1200000; begun record;
  late_ids bigint[]; oldest_late bigint; first bigint; visited integer; last bigint; histories bigint[];
  seqs bigint[]; due record; trimmed_seq bigint; up_to bigint; dropped bigint; dropped_bytes bigint;
  total bigint := 0;
BEGIN
  IF NOT pg_try_advisory_xact_lock(1129794373) THEN RETURN 0; END IF;
  ${readPosition("events", "begun")}
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
`
