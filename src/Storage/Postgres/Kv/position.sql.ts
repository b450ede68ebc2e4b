/** Returns the position of a name. A function, so that its scan starts at the newest row under all settings. */
export const position = `CREATE FUNCTION causeway.position(position_name text) RETURNS bigint
  LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
  AS $function$
  BEGIN
    RETURN (SELECT p.up_to FROM causeway.positions p WHERE p.name = position_name ORDER BY p.id DESC LIMIT 1);
  END
  $function$`
