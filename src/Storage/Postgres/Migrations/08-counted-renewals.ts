export const statements: ReadonlyArray<string> = [
  // How often the lease was renewed.
  "ALTER TABLE causeway.nodes ADD COLUMN renewals bigint NOT NULL DEFAULT 0",
  `
CREATE OR REPLACE FUNCTION causeway.renew_lease(node uuid, lease bigint, always boolean) RETURNS bigint
LANGUAGE plpgsql
AS $function$
DECLARE
  moment timestamptz := clock_timestamp();
  ends timestamptz := moment + lease * interval '1 millisecond';
  renewed bigint;
BEGIN
  PERFORM FROM causeway.nodes n WHERE n.id = node AND n.expires_at > moment;
  IF FOUND AND NOT always THEN RETURN NULL; END IF;
  INSERT INTO causeway.nodes AS n (id, since, expires_at, renewals) VALUES (node, moment, ends, 1)
  ON CONFLICT (id) DO UPDATE SET
    since = CASE WHEN n.expires_at > moment AND n.since <= moment THEN n.since ELSE moment END,
    lapses = n.lapses + CASE WHEN n.expires_at > moment THEN 0 ELSE 1 END,
    expires_at = ends,
    renewals = n.renewals + 1
  RETURNING n.lapses INTO renewed;
  RETURN renewed;
END
$function$`
]
