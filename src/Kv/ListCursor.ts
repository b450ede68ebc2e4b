/**
 * The cursors of lists, and the links to their next pages.
 */
import { createHash } from "node:crypto"
import { Either, Encoding } from "effect"
import type { BadRequest } from "../Http/ApiError.ts"
import * as Errors from "./Errors.ts"

/** What a cursor goes with, besides what names the list: pages of another list would leave something out. */
export type Bounds = ReadonlyArray<string>

/** A digest of the list that a cursor is of. It is no secret: it tells a mistake. */
const digestOf = (bounds: Bounds): string =>
  // Names hold no U+0000, so that it tells them apart.
  createHash("sha256").update(bounds.join("\u0000")).digest("base64url").slice(0, 8)

/** A page starts after its cursor: the last name of the page before, in base64url, so that a query can hold any name. */
const cursorOf = (digest: string, last: string): string => `${digest}.${Encoding.encodeBase64Url(last)}`

/** The name in a cursor, `""` without one. `goesWith` says in the error what a cursor goes with. */
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
    : Either.left(
        Errors.badRequest(`cursor is none that a Link header of this list held: it goes with the same ${goesWith}`)
      )
}

/** The header with a link (RFC 8288) to the next page. */
export const linkHeader = (
  /** The path of this page as the client wrote it. */
  target: string,
  /** The parameters of the next page that this one has, too. */
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
