/**
 * Databases list their applied migrations by number and name. If the list differs from that of this code, another
 * version of the code has migrated the database, and its tables may differ.
 */

/**
 * The difference between a list of migrations and the first `applied` ones of this code, as the end of a sentence about
 * the database; `undefined` if there is none. Numbers begin at 1. A list with more than `applied` is different, too: the
 * schema is that of another version whose number was not stored.
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
  for (const [version, name] of listed) {
    if (version >= 1 && version <= applied) continue
    return `its migration ${version} is ${JSON.stringify(name)}, and its schema has the number ${applied}`
  }
  return undefined
}
