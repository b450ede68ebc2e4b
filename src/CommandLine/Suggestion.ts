/** Suggestions for mistyped names. */

/** The Damerau-Levenshtein distance: insertions, deletions, replacements and transpositions of neighbors. */
export const distance = (from: string, to: string): number => {
  let beforeLast: ReadonlyArray<number> = []
  let last: ReadonlyArray<number> = Array.from({ length: to.length + 1 }, (_, index) => index)
  for (let row = 1; row <= from.length; row++) {
    const next = [row]
    for (let column = 1; column <= to.length; column++) {
      const isSame = from[row - 1] === to[column - 1]
      const isExchanged = row > 1 && column > 1 && from[row - 1] === to[column - 2] && from[row - 2] === to[column - 1]
      next[column] = Math.min(
        (last[column] ?? 0) + 1,
        (next[column - 1] ?? 0) + 1,
        (last[column - 1] ?? 0) + (isSame ? 0 : 1),
        isExchanged ? (beforeLast[column - 2] ?? 0) + 1 : Number.POSITIVE_INFINITY
      )
    }
    beforeLast = last
    last = next
  }
  return last[to.length] ?? 0
}

/** Names that other programs use. */
const customary: Readonly<Record<string, string>> = {
  help: "--help",
  "-help": "--help",
  "-?": "--help",
  version: "--version",
  "-v": "--version",
  "-V": "--version",
  ls: "list",
  put: "set",
  rm: "delete"
}

/** The name most similar to a text, if one is similar. */
export const of = (text: string, names: ReadonlyArray<string>): string | undefined => {
  const meant = customary[text]
  if (meant !== undefined && names.includes(meant)) return meant
  // The time grows with the square of the length.
  if (text.length > 40) return undefined
  const maxChanges = Math.max(1, Math.floor(text.replace(/^-+/, "").length / 3))
  const [nearest] = names
    .map(name => ({ name, changes: distance(text, name) }))
    .filter(({ changes }) => changes <= maxChanges)
    .sort((a, b) => a.changes - b.changes)
  return nearest?.name
}
