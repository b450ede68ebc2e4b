/**
 * Renews or creates the lease of a node; unless `always` is true, only if it has ended. Returns how often the lease had
 * ended before it was renewed, by which a node learns that others may have taken its sessions, or NULL if nothing was
 * done. A lease ends as long after its renewal as it says even if the clock of the database is set back.
 */
export const renewLease = `
CREATE FUNCTION causeway.renew_lease(node uuid, lease bigint, always boolean) RETURNS bigint
LANGUAGE plpgsql
AS $function$
DECLARE
  moment timestamptz := clock_timestamp();
  ends timestamptz := moment + lease * interval '1 millisecond';
  -- Apart from the column of that name.
  millis bigint := lease;
  renewed bigint;
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
$function$`

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
