/**
 * The header fields of a request as a whole: that none was dropped, and that none stands there twice that must not.
 */
import type { IncomingMessage } from "node:http"

/** Header lines that a request may have. The limit on their bytes allows for more, which only an attacker sends. */
export const mostFields = 2000

/** Entries of `rawHeaders`, a name and a value for each line, that node fills unless told otherwise. */
const entriesByNode = 2000

/** Why a request is refused for its header fields. */
export interface FieldsProblem {
  readonly status: 400 | 431
  readonly error: string
}

/**
 * Fields that a request has once (RFC 9110, 5.3), and that mean something here. Of several node keeps the first, while
 * whoever checked the request on its way may have gone by the last. Of the other fields, node joins those that
 * RFC 9110 lets be joined, and what it drops of the rest means nothing to this service.
 */
const singular = ["Host", "Authorization", "Content-Type", "Content-Length", "If-Modified-Since", "If-Unmodified-Since"]

/** The index in {@link singular} of a name, by its length: of most names nothing else is looked at. */
const byLength: ReadonlyArray<number | undefined> = Array.from({ length: 20 }, (_, length) => {
  const index = singular.findIndex(name => name.length === length)
  return index === -1 ? undefined : index
})

const lower = singular.map(name => name.toLowerCase())

/** Clients write names in one of two ways, and seldom in another. */
const isNamed = (name: string, index: number): boolean =>
  name === singular[index] || name === lower[index] || name.toLowerCase() === lower[index]

/** Where more header lines than these stand in a request, its server may have dropped some without a word. */
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
  // Few requests have so many that the server has to be asked.
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
