/**
 * The order of keys: that of their bytes in UTF-8, which is not that of JavaScript.
 */
import type { NamespaceQuery, Selection } from "../Kv/Store.ts"

/** Compares two well-formed texts by their bytes. */
export const compare = (a: string, b: string): number => Buffer.compare(Buffer.from(a), Buffer.from(b))

/** Keys from `low` on, all before `high` where there is one. */
export interface Range {
  readonly low: string
  readonly high: string | undefined
}

/** The keys of a selection, or `undefined` where it can have none. */
export const rangeOf = ({ end = "", prefix, start = "" }: Omit<Selection, "namespace">): Range | undefined => {
  // A prefix that ends in half of a surrogate pair has no UTF-8, in which prefixes are compared: no key starts with it.
  if (!prefix.isWellFormed()) return undefined
  const endOf = endOfPrefix(prefix)
  if (start === "" && end === "") return { low: prefix, high: endOf }
  const low = compare(start, prefix) > 0 ? start : prefix
  const high = end !== "" && (endOf === undefined || compare(end, endOf) < 0) ? end : endOf
  return high !== undefined && compare(low, high) >= 0 ? undefined : { low, high }
}

/** The namespaces of a query as a range. */
export interface NamespaceRange extends Range {
  /** Of the range, only the namespace `only` and those from `from` on; all of it where these are `""`. */
  readonly only: string
  readonly from: string
}

/** The range of a query, or `undefined` where there can be none in it. */
export const rangeOfNamespaces = ({ prefix, tenant }: NamespaceQuery): NamespaceRange | undefined => {
  if (tenant === "") return merge(rangeOf({ prefix }), "", "")
  const own = `tenant:${tenant}`
  // What follows all that start with the name and a slash.
  return merge(rangeOf({ prefix, start: own, end: `${own}0` }), own, `${own}/`)
}

const merge = (range: Range | undefined, only: string, from: string): NamespaceRange | undefined =>
  range === undefined ? undefined : { ...range, only, from }

/** Where the keys that start with a prefix end: the least text after all of them, or nothing where there is none. */
export const endOfPrefix = (prefix: string): string | undefined => {
  const points = [...prefix].map(character => character.codePointAt(0)!)
  for (let last = points.pop(); last !== undefined; last = points.pop()) {
    if (last === 0x10ffff) continue
    // Surrogates are no characters of UTF-8: what follows U+D7FF is U+E000.
    return String.fromCodePoint(...points, last === 0xd7ff ? 0xe000 : last + 1)
  }
  return undefined
}
