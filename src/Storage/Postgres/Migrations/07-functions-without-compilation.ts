/**
 * A disabled scan, as of a table without an index, counts as so expensive that the server compiles the plan. This took a
 * quarter of a second for a new connection, under the lock that all writers wait for.
 */
export const statements: ReadonlyArray<string> = [
  "ALTER FUNCTION causeway.expire(bigint, integer) SET jit = off",
  "ALTER FUNCTION causeway.trim(bigint, integer) SET jit = off",
  "ALTER FUNCTION causeway.trim_sessions(bigint, integer) SET jit = off"
]
