/**
 * The cursors of lists, and the links to their next pages.
 */
import { createHash } from "node:crypto"
import { Either, Encoding } from "effect"
import type { BadRequest } from "../Http/ApiError.ts"
import * as Errors from "./Errors.ts"

/**
 * The parameters that a cursor is bound to, besides the name of the list: with others, a page would leave entries out.
 */
export type Bounds = ReadonlyArray<string>

/** A digest of the parameters of a cursor. It is not secret: it only detects mistakes. */
const digestOf = (bounds: Bounds): string =>
  // Names never contain U+0000, so that the text is unambiguous.
  createHash("sha256").update(bounds.join("\u0000")).digest("base64url").slice(0, 8)

/** The cursor of a page: the last name of the previous page, in base64url, so that it fits into a query. */
const cursorOf = (digest: string, last: string): string => `${digest}.${Encoding.encodeBase64Url(last)}`

/**
 * The name in a cursor, `""` without one. `goesWith` names the parameters that the cursor is bound to, for the error.
 */
export const nameOf = (
  cursor: string | undefined,
  bounds: Bounds,
  goesWith: string
): Either.Either<string, BadRequest> => {
  if (cursor === undefined) return Either.right("")
  const digest = digestOf(bounds)
  const name = Encoding.decodeBase64UrlString(cursor.slice(digest.length + 1))
  return Either.isRight(name) && cursorOf(digest, name.right) === cursor
    ? Either.right(name.right)
    : Either.left(Errors.badRequest(`cursor is not from a Link header of this list: it requires the same ${goesWith}`))
}

/** The header with a link (RFC 8288) to the next page. */
export const linkHeader = (
  /** The path of this page as the client wrote it. */
  target: string,
  /** The parameters of this page that the next page has, too. */
  kept: Readonly<Record<string, string | undefined>>,
  bounds: Bounds,
  limit: number,
  last: string
): { readonly link: string } => {
  const params = new URLSearchParams()
  for (const name in kept) if (kept[name]) params.set(name, kept[name])
  params.set("limit", String(limit))
  params.set("cursor", cursorOf(digestOf(bounds), last))
  // These characters would end the reference.
  const path = target.replaceAll("<", "%3C").replaceAll(">", "%3E").replaceAll('"', "%22")
  return { link: `<${path}?${params}>; rel="next"` }
}
