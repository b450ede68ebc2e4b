/**
 * Databases list their applied migrations by number and name. If the list differs from that of this code, another
 * version of the code has migrated the database, and its tables may differ.
 */

/**
 * The first difference between a list of migrations and those of this code that should be in it, as the end of a
 * sentence about the database; `undefined` if there is none. Numbers begin at 1. A list with more is different, too: the
 * schema is that of another version whose number was not stored.
 */
export const differenceOf = (
  known: ReadonlyArray<{ readonly name: string }>,
  listed: ReadonlyMap<number, string>
): string | undefined => {
  for (const [index, { name }] of known.entries()) {
    const there = listed.get(index + 1)
    if (name === there) continue
    const other = there === undefined ? "is missing" : `is ${JSON.stringify(there)}`
    return `its migration ${index + 1} ${other}, and that of this version is ${JSON.stringify(name)}`
  }
  for (const [version, name] of listed) {
    if (version >= 1 && version <= known.length) continue
    return `its migration ${version} is ${JSON.stringify(name)}, and its schema has the number ${known.length}`
  }
  return undefined
}

/** Whether a database was written by a version from before the first release: its first migration had this name. */
export const isOfDevelopment = (listed: ReadonlyMap<number, string>): boolean => listed.get(1) === "initial"

/** The end of a sentence that refuses such a database. `place` is what the user can use in its place. */
export const ofDevelopment = (place: string): string =>
  "was written by a development version before the first release: " +
  `export its entries with that version and import them into another ${place}, or start with an empty one`
