/** One issue of a schema decoder, as `ParseResult.ArrayFormatter` gives it. */
export interface Issue {
  readonly _tag: string
  readonly path: ReadonlyArray<PropertyKey>
  readonly message: string
}

/** Maximum number of issues in one message. */
const maxIssues = 3

/** Maximum number of characters of each. */
const maxLength = 300

/** A path as JavaScript would write it: `operations[3].op`. */
const shown = (path: ReadonlyArray<PropertyKey>): string =>
  path
    .map((part, index) => (typeof part === "number" ? `[${part}]` : `${index === 0 ? "" : "."}${String(part)}`))
    .join("")

/** The problem with a request, in one sentence for its client: the first issues, each with its path. */
export const describe = (issues: ReadonlyArray<Issue>): string => {
  const sentences = issues.slice(0, maxIssues).map(({ message, path }) => {
    const short = message.length > maxLength ? `${message.slice(0, maxLength)}…` : message
    return path.length === 0 ? short : `${shown(path)}: ${short}`
  })
  return `Invalid request: ${sentences.join("; ")}`
}
