/**
 * Databases list the migrations that have run by number and name. A database whose list differs from that of this code
 * was written by a version with other migrations: its tables need not be those that the numbers promise.
 */

/**
 * How a list of migrations differs from the first `applied` ones of this code, as the end of a sentence about the
 * database; `undefined` where it does not. Numbers begin at 1.
 */
export const differenceOf = (
  known: ReadonlyArray<string>,
  applied: number,
  listed: ReadonlyMap<number, string>
): string | undefined => {
  for (let version = 1; version <= applied; version++) {
    const [here, there] = [known[version - 1], listed.get(version)]
    if (here === there) continue
    const other = there === undefined ? "is missing" : `is ${JSON.stringify(there)}`
    return `its migration ${version} ${other}, and that of this version is ${JSON.stringify(here)}`
  }
  return undefined
}
