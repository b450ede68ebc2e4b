/**
 * Conditional requests (RFC 9110, section 13): an entry's entity tag is its version in quotes.
 */
import { Either } from "effect"
import type { Precondition } from "./Write.ts"

/** The request headers that carry preconditions. */
export interface ConditionHeaders {
  readonly "if-match"?: string
  readonly "if-none-match"?: string
}

/** The entity tag of a version. */
export const etag = (version: number): string => `"${version}"`

const list = /^(?:\s*,)*\s*(?:W\/)?"[^"]*"(?:\s*,(?:\s*(?:W\/)?"[^"]*")?)*\s*$/
const tag = /(W\/)?"([^"]*)"/g

/** The versions that a list of entity tags names; a tag that is no version matches nothing. */
const versionsIn = (header: string, weakToo: boolean): ReadonlyArray<number> => {
  const versions: Array<number> = []
  for (const [, weak, opaque] of header.matchAll(tag)) {
    if ((weak === undefined || weakToo) && /^[1-9]\d{0,15}$/.test(opaque!)) versions.push(Number(opaque))
  }
  return versions
}

const parseTags = (
  name: string,
  header: string,
  weakToo: boolean
): Either.Either<"any" | ReadonlyArray<number>, string> => {
  if (header.trim() === "*") return Either.right("any")
  return list.test(header)
    ? Either.right(versionsIn(header, weakToo))
    : Either.left(`${name} must be * or versions in quotes, such as "3", not ${header.slice(0, 64)}`)
}

/**
 * The precondition that the headers state, or what is wrong with them.
 *
 * Weak tags never match in If-Match and do in If-None-Match (RFC 9110, 8.8.3.2).
 */
export const parse = (headers: ConditionHeaders): Either.Either<Precondition | undefined, string> => {
  const ifMatch = headers["if-match"]
  const ifNoneMatch = headers["if-none-match"]
  if (ifMatch === undefined && ifNoneMatch === undefined) return Either.right(undefined)
  return Either.gen(function* () {
    return {
      ...(ifMatch === undefined ? {} : { match: yield* parseTags("If-Match", ifMatch, false) }),
      ...(ifNoneMatch === undefined ? {} : { noneMatch: yield* parseTags("If-None-Match", ifNoneMatch, true) })
    }
  })
}
