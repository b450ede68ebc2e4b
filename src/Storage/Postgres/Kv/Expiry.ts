/**
 * From where on entries are looked at that have expired. No entry expires at the position or before it, so that what was
 * expired already is not visited again.
 *
 * The position is moved under the lock of the log, and never beyond the time of its newest record. No later write is
 * recorded with an earlier time. So only an entry that has expired when it is written can be before the position, and a
 * trigger moves the position back for it.
 */
import type { Statement } from "../Database/Statement.ts"
import * as Positions from "./Positions.ts"

/** Of entries: those that have expired at `now` and are still stored. */
export const isDue = (now: string): string => `expires_at > ${Positions.of("expiry")} AND expires_at <= ${now}`

/** Milliseconds by which the position may be behind where nothing expires, as entries are written again before they do. */
const maxBehind = 10_000

/** Milliseconds between two looks at whether it is. */
export const interval = maxBehind

export const advance: Statement = { name: "advance_expiry", text: "SELECT causeway.advance_expiry($1)" }

export const statements: ReadonlyArray<string> = [
  ...Positions.statements,
  "INSERT INTO causeway.positions (name, id, up_to) VALUES ('expiry', 1, 0)",
  // Where all entries were expired the server expects none, and would go through all that are dead for the one to delete.
  `CREATE FUNCTION causeway.delete_entries(places tid[]) RETURNS void
  LANGUAGE plpgsql
  SET enable_seqscan = off
  SET enable_indexscan = off
  SET enable_bitmapscan = off
  SET jit = off
  AS $function$
  BEGIN
    DELETE FROM causeway.entries e WHERE e.ctid = ANY (places);
  END
  $function$`,
  // Deletes entries that have expired, those first that expired first. Returns how many, and the last `seq`.
  `CREATE OR REPLACE FUNCTION causeway.expire(now bigint, portion integer, OUT expired bigint, OUT last_seq bigint)
  LANGUAGE plpgsql${Positions.settings}
  AS $function$
  DECLARE
    base bigint;
    stamp bigint;
    begun record;
    places tid[];
  BEGIN
    expired := 0;
    PERFORM FROM causeway.entries e WHERE ${isDue("now")} ORDER BY e.expires_at LIMIT 1;
    IF NOT FOUND THEN RETURN; END IF;
    PERFORM FROM causeway.log FOR UPDATE;
    ${Positions.newest("expiry", "INTO begun")};
    SELECT c.seq, greatest(now, c.timestamp) INTO base, stamp FROM causeway.changes c ORDER BY c.seq DESC LIMIT 1;
    WITH due AS MATERIALIZED (
      SELECT d.*, row_number() OVER (ORDER BY d.expires_at, d.namespace, d.key) AS position
      FROM (
        SELECT e.namespace, e.key, e.version, e.expires_at, e.ctid AS place FROM causeway.entries e
        WHERE e.expires_at > begun.up_to AND e.expires_at <= now ORDER BY e.expires_at LIMIT portion
      ) d
    ), marked AS (
      INSERT INTO causeway.tombstones (namespace, key, version, seq)
      SELECT d.namespace, d.key, d.version + 1, base + d.position FROM due d
    ), moved AS (
      -- Beside the last one of a full portion there may be others that expire with it.
      INSERT INTO causeway.positions (name, id, up_to)
      SELECT 'expiry', begun.id + 1, CASE WHEN count(*) < portion THEN now ELSE max(d.expires_at) - 1 END
      FROM due d HAVING count(*) > 0
    ), recorded AS (
      INSERT INTO causeway.changes (seq, op, namespace, key, version, actor, timestamp)
      SELECT base + d.position, 'delete', d.namespace, d.key, d.version + 1, 'expiry', stamp FROM due d
    )
    SELECT count(*), array_agg(d.place) INTO expired, places FROM due d;
    IF expired > 0 THEN
      PERFORM causeway.delete_entries(places);
      DELETE FROM causeway.positions p WHERE p.name = 'expiry' AND p.id <= begun.id;
    END IF;
    last_seq := base + expired;
  END
  $function$`,
  // Moves the position where nothing has expired for a while. What is to be expired moves it by itself.
  `CREATE FUNCTION causeway.advance_expiry(now bigint) RETURNS void
  LANGUAGE plpgsql${Positions.settings}
  AS $function$
  DECLARE
    begun record;
    target bigint;
  BEGIN
    ${Positions.newest("expiry", "INTO begun")};
    SELECT least(now, c.timestamp) INTO target FROM causeway.changes c ORDER BY c.seq DESC LIMIT 1;
    IF target IS NULL OR target <= begun.up_to + ${maxBehind} THEN RETURN; END IF;
    PERFORM FROM causeway.entries e WHERE e.expires_at > begun.up_to ORDER BY e.expires_at LIMIT 1;
    IF NOT FOUND THEN RETURN; END IF;
    PERFORM FROM causeway.entries e WHERE e.expires_at > begun.up_to AND e.expires_at <= target
    ORDER BY e.expires_at LIMIT 1;
    IF FOUND THEN RETURN; END IF;
    PERFORM FROM causeway.log FOR UPDATE;
    -- What was written since the time of the first look has the same time or a later one.
    ${Positions.newest("expiry", "INTO begun")};
    IF target <= begun.up_to THEN RETURN; END IF;
    PERFORM FROM causeway.entries e WHERE e.expires_at > begun.up_to AND e.expires_at <= target
    ORDER BY e.expires_at LIMIT 1;
    IF FOUND THEN RETURN; END IF;
    INSERT INTO causeway.positions (name, id, up_to) VALUES ('expiry', begun.id + 1, target);
    DELETE FROM causeway.positions p WHERE p.name = 'expiry' AND p.id <= begun.id;
  END
  $function$`,
  // Without settings, which take longer than the rest of a call.
  `CREATE FUNCTION causeway.lower_expiry() RETURNS trigger
  LANGUAGE plpgsql
  AS $function$
  BEGIN
    IF TG_OP = 'TRUNCATE' THEN
      -- What is put there next was written elsewhere, where other times were recorded.
      INSERT INTO causeway.positions (name, id, up_to) SELECT 'expiry', n.id + 1, 0 FROM (${Positions.newest("expiry")}) n;
      RETURN NULL;
    END IF;
    -- Whoever writes by hand need not have it.
    PERFORM FROM causeway.log FOR UPDATE;
    INSERT INTO causeway.positions (name, id, up_to)
    SELECT 'expiry', n.id + 1, NEW.expires_at - 1 FROM (${Positions.newest("expiry")}) n WHERE n.up_to >= NEW.expires_at;
    RETURN NULL;
  END
  $function$`,
  // The clock of the database is for rows that are written by hand, with any time.
  `CREATE TRIGGER entries_born_expired AFTER INSERT OR UPDATE OF expires_at ON causeway.entries FOR EACH ROW
    WHEN (NEW.expires_at IS NOT NULL
      AND NEW.expires_at <= greatest(NEW.updated_at, (extract(epoch FROM clock_timestamp()) * 1000)::bigint))
    EXECUTE FUNCTION causeway.lower_expiry()`,
  `CREATE TRIGGER entries_truncated_expiry AFTER TRUNCATE ON causeway.entries
    FOR EACH STATEMENT EXECUTE FUNCTION causeway.lower_expiry()`
]
