/**
 * Writes to the histories of many sessions in one call. It does what `Storage/Sqlite/SessionEvents/Writer` does, and
 * checks that each session belongs to the node. The writes are ordered by session, and each locks the row of its
 * session first, so that groups of several nodes cannot deadlock.
 *
 * Each array has one element for each write, except `texts`, which contains the events of all appends one after the
 * other. `node` owns its sessions while its lease of `lease` milliseconds is renewed. A token is the one with which the
 * node owns the session, or null. `WriteCodes` has the numbers of operations and outcomes.
 *
 * A history that is opened in another epoch of the database than before gets a new epoch: events at its end that
 * clients have seen may be lost, and their numbers are used again.
 *
 * An append of events that are old already, as of a node whose clock is behind, is reported to `trim_sessions`.
 *
 * Returns a JSON array with the outcome of each write: 0 if it was stored, `[1, head]` if it is out of step, `[2]` if
 * the session belongs to another node, and `[3, token, epoch, head, trimmed, recovery state]` for a history.
 */
export const writeSessions = `
CREATE FUNCTION causeway.write_sessions(
  group_id uuid,
  node uuid,
  lease bigint,
  most_events bigint,
  most_bytes bigint,
  most_receipts integer,
  ops integer[],
  sessions text[],
  tokens bigint[],
  epochs text[],
  afters bigint[],
  timestamps bigint[],
  counts integer[],
  sizes bigint[],
  texts text[],
  states text[],
  receipt_ids text[],
  digests text[],
  turns text[],
  revoked_ids text[],
  environments text[],
  deployments text[]
) RETURNS text
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_hashjoin = off
SET jit = off
AS $function$
DECLARE
  results text[] := '{}';
  -- Events of the appends before the write at hand.
  base integer := 0;
  h causeway.histories%ROWTYPE;
  oldest record;
  kept_from bigint;
  bytes_left bigint;
  is_allowed boolean;
  current_epoch text;
  late_from bigint := (extract(epoch FROM clock_timestamp()) * 1000)::bigint - 600000;
  oldest_late bigint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'causeway.write_sessions needs the isolation level read committed' USING ERRCODE = '0A000';
  END IF;
  FOR i IN 1 .. cardinality(ops) LOOP
    IF ops[i] = 0 THEN
      UPDATE causeway.histories u
      SET head = u.head + counts[i], bytes = u.bytes + sizes[i],
        -- The value that is there is not written again.
        recovery_state = CASE WHEN u.recovery_state IS DISTINCT FROM states[i] THEN states[i] ELSE u.recovery_state END
      WHERE u.session = sessions[i] AND u.epoch = epochs[i] AND u.head = afters[i]
        AND u.owner = node AND u.token = tokens[i]
      RETURNING u.* INTO h;
      IF NOT FOUND THEN
        SELECT * INTO h FROM causeway.histories f WHERE f.session = sessions[i];
        results[i] := CASE
          WHEN NOT FOUND THEN '[1,null]'
          WHEN h.owner = node AND h.token = tokens[i] THEN concat('[1,', h.head, ']')
          ELSE '[2]'
        END;
        base := base + counts[i];
        CONTINUE;
      END IF;
      IF counts[i] > 0 THEN
        INSERT INTO causeway.events (history, seq, timestamp, size, text)
        SELECT h.id, afters[i] + n, timestamps[i], octet_length(texts[base + n]), texts[base + n]
        FROM generate_series(1, counts[i]) n;
        base := base + counts[i];
        IF timestamps[i] <= late_from THEN oldest_late := least(oldest_late, timestamps[i]); END IF;
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
      IF revoked_ids[i] IS NOT NULL THEN
        DELETE FROM causeway.receipts d WHERE d.history = h.id AND d.id = revoked_ids[i];
      END IF;
      IF receipt_ids[i] IS NOT NULL THEN
        INSERT INTO causeway.receipts AS k (history, id, seq, digest, turn)
        VALUES (h.id, receipt_ids[i], h.head, digests[i], turns[i])
        ON CONFLICT (history, id)
        DO UPDATE SET seq = excluded.seq, digest = excluded.digest, turn = excluded.turn, place = DEFAULT;
        DELETE FROM causeway.receipts d WHERE d.history = h.id AND d.id IN (
          SELECT o.id FROM causeway.receipts o WHERE o.history = h.id AND o.seq >= h.trimmed
          ORDER BY o.seq DESC, o.place DESC OFFSET most_receipts
        );
      END IF;
      results[i] := '0';
      CONTINUE;
    END IF;

    SELECT * INTO h FROM causeway.histories f WHERE f.session = sessions[i] FOR UPDATE;
    IF NOT FOUND AND ops[i] IN (1, 2) THEN
      INSERT INTO causeway.histories (session, epoch) VALUES (sessions[i], epochs[i]) ON CONFLICT (session) DO NOTHING;
      SELECT * INTO h FROM causeway.histories f WHERE f.session = sessions[i] FOR UPDATE;
    END IF;
    is_allowed := CASE
      WHEN h.id IS NULL THEN true
      WHEN tokens[i] IS NOT NULL THEN coalesce(h.owner = node AND h.token = tokens[i], false)
      ELSE h.owner IS NULL OR h.owner = node OR causeway.is_gone(h.owner, node, lease)
    END;
    IF ops[i] = 5 THEN
      UPDATE causeway.histories u SET owner = NULL WHERE u.id = h.id AND u.owner = node AND u.token = tokens[i];
      results[i] := '0';
      CONTINUE;
    END IF;
    IF NOT is_allowed THEN
      results[i] := '[2]';
      CONTINUE;
    END IF;
    IF ops[i] IN (1, 2) THEN
      current_epoch := coalesce(current_epoch, causeway.epoch());
      IF h.database_epoch IS DISTINCT FROM current_epoch THEN
        UPDATE causeway.histories u
        SET epoch = CASE WHEN u.database_epoch IS NULL THEN u.epoch ELSE left(replace(gen_random_uuid()::text, '-', ''), 16) END, database_epoch = current_epoch
        WHERE u.id = h.id RETURNING u.* INTO h;
      END IF;
      IF ops[i] = 2 THEN
        UPDATE causeway.histories u SET epoch = epochs[i] WHERE u.id = h.id RETURNING u.* INTO h;
      END IF;
      IF h.owner IS DISTINCT FROM node THEN
        PERFORM causeway.renew_lease(node, lease, false);
        UPDATE causeway.histories u SET owner = node, token = nextval('causeway.session_tokens')
        WHERE u.id = h.id RETURNING u.* INTO h;
      END IF;
      results[i] := json_build_array(3, h.token, h.epoch, h.head, h.trimmed, h.recovery_state)::text;
    ELSIF ops[i] = 3 THEN
      IF environments[i] IS NULL AND deployments[i] IS NULL THEN
        DELETE FROM causeway.launch_configurations d WHERE d.session = sessions[i];
      ELSE
        INSERT INTO causeway.launch_configurations (session, environment, deployment)
        VALUES (sessions[i], environments[i], deployments[i])
        ON CONFLICT (session) DO UPDATE SET environment = excluded.environment, deployment = excluded.deployment;
      END IF;
      results[i] := '0';
    ELSE
      DELETE FROM causeway.events d WHERE d.history = h.id;
      DELETE FROM causeway.receipts d WHERE d.history = h.id;
      DELETE FROM causeway.histories d WHERE d.id = h.id;
      DELETE FROM causeway.launch_configurations d WHERE d.session = sessions[i];
      results[i] := '0';
    END IF;
  END LOOP;
  IF oldest_late IS NOT NULL THEN
    -- A unique number, so that no writer waits for another.
    INSERT INTO causeway.positions (name, id, up_to)
    VALUES ('late events', nextval('causeway.session_tokens'), oldest_late);
  END IF;
  INSERT INTO causeway.commits (id, result) VALUES (group_id, concat('[', array_to_string(results, ','), ']'));
  RETURN concat('[', array_to_string(results, ','), ']');
END
$function$`
