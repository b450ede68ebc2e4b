/**
 * Checks of the header fields of a request: that none was dropped, and that none is repeated that must not be.
 */
import type { IncomingMessage } from "node:http"

/** Header lines that a request may have. The limit on their bytes would allow more, which only an attacker sends. */
export const mostFields = 2000

/** Entries of `rawHeaders`, a name and a value for each line, that node keeps by default. */
const entriesByNode = 2000

/** Why a request is refused for its header fields. */
export interface FieldsProblem {
  readonly status: 400 | 431
  readonly error: string
}

/**
 * Fields with a meaning here that a request has once (RFC 9110, 5.3). Of several node keeps the first, while a proxy may
 * have used the last. Of the other fields, node joins those that RFC 9110 allows to be joined, and what it drops of the
 * rest has no meaning here.
 */
const singular = ["Host", "Authorization", "Content-Type", "Content-Length", "If-Modified-Since", "If-Unmodified-Since"]

/** The index in {@link singular} by the length of a name: most names are ruled out by it. */
const byLength: ReadonlyArray<number | undefined> = Array.from({ length: 20 }, (_, length) => {
  const index = singular.findIndex(name => name.length === length)
  return index === -1 ? undefined : index
})

const lower = singular.map(name => name.toLowerCase())

/** The two common spellings are compared first. */
const isNamed = (name: string, index: number): boolean =>
  name === singular[index] || name === lower[index] || name.toLowerCase() === lower[index]

/** The number of entries beyond which the server of a request may have dropped some. */
const entriesOf = (request: IncomingMessage): number => {
  const server: unknown = Reflect.get(request.socket, "server")
  const most: unknown =
    typeof server === "object" && server !== null ? Reflect.get(server, "maxHeadersCount") : undefined
  if (typeof most !== "number") return entriesByNode
  return most === 0 ? Number.POSITIVE_INFINITY : 2 * most
}

/** What is wrong with the header fields of a request, if anything is. */
export const problemOfFields = (request: IncomingMessage): FieldsProblem | undefined => {
  const { rawHeaders } = request
  const entries = rawHeaders.length
  if (entries > 2 * mostFields) {
    return { status: 431, error: `The request has ${entries / 2} header lines; the limit is ${mostFields}` }
  }
  // Few requests have so many that the limit of the server matters.
  if (entries >= 64) {
    const most = entriesOf(request)
    if (entries >= most)
      return { status: 431, error: `The request has ${most / 2} header lines or more, which is too many` }
  }
  let seen = 0
  for (let at = 0; at < entries; at += 2) {
    const name = rawHeaders[at]!
    const index = byLength[name.length]
    if (index === undefined || !isNamed(name, index)) continue
    const bit = 1 << index
    if ((seen & bit) !== 0) return { status: 400, error: `The header ${singular[index]} stands in the request twice` }
    seen |= bit
  }
  return undefined
}
