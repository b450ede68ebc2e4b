/** What a schema found wrong, in one sentence for a client. */

/** One finding of a schema decoder, as `ParseResult.ArrayFormatter` gives it. */
export interface Issue {
  readonly _tag: string
  readonly path: ReadonlyArray<PropertyKey>
  readonly message: string
}

const most = 3
const longest = 300

/** `operations[3].op`, as JavaScript would write it. */
const place = (path: ReadonlyArray<PropertyKey>): string =>
  path.reduce<string>(
    (text, part) =>
      typeof part === "number" ? `${text}[${part}]` : text === "" ? String(part) : `${text}.${String(part)}`,
    ""
  )

const sentence = ({ path, message }: Issue): string => {
  const short = message.length > longest ? `${message.slice(0, longest)}…` : message
  const where = place(path)
  return where === "" ? short : `${where}: ${short}`
}

/** The first few findings, each with its place in the request. */
export const describe = (issues: ReadonlyArray<Issue>): string =>
  `Invalid request: ${issues.slice(0, most).map(sentence).join("; ")}`
