/**
 * Where scans begin. A row that was deleted stays in its index as long as somebody holds a snapshot from before, and a scan
 * that begins at the least value visits all of those. So a position says up to where there is nothing left.
 *
 * A position is moved by a new row with the next id. An update would leave versions of one row, all of which are visited
 * by whoever reads it; of rows the newest is found without those before it. Who moves a position has a lock for it.
 */

export type Name = "expiry" | "counts"

/** A position, read once for a statement and in its snapshot. */
export const of = (name: Name): string => `(SELECT causeway.position('${name}'))`

/** The newest row of a position; a function may read it into a record. */
export const newest = (name: Name, into = ""): string =>
  `SELECT p.id, p.up_to ${into} FROM causeway.positions p WHERE p.name = '${name}' ORDER BY p.id DESC LIMIT 1`

/** Settings of functions that read positions, or rows from one on: what was deleted must not be scanned. */
export const settings = `
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off`

export const statements: ReadonlyArray<string> = [
  `CREATE TABLE causeway.positions (
    name text COLLATE "C" NOT NULL, id bigint NOT NULL, up_to bigint NOT NULL, PRIMARY KEY (name, id)
  )`,
  `CREATE FUNCTION causeway.position(position_name text) RETURNS bigint
  LANGUAGE plpgsql STABLE${settings}
  AS $function$
  BEGIN
    RETURN (SELECT p.up_to FROM causeway.positions p WHERE p.name = position_name ORDER BY p.id DESC LIMIT 1);
  END
  $function$`
]
