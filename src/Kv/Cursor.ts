/**
 * Where the next page of a list starts: the last key of the one before, in base64url, so that any key can stand
 * in a query and nobody is tempted to make cursors up.
 */
import { Either, Encoding } from "effect"

/** The cursor behind a key. */
export const encode = (lastKey: string): string => Encoding.encodeBase64Url(lastKey)

/** The key that a cursor stands behind, `""` without one, or what is wrong with it. */
export const decode = (cursor: string | undefined): Either.Either<string, string> =>
  cursor === undefined
    ? Either.right("")
    : Encoding.decodeBase64UrlString(cursor).pipe(
        Either.filterOrLeft(
          key => encode(key) === cursor,
          () => undefined
        ),
        Either.mapLeft(() => "cursor is none that a Link header of this list held")
      )

/**
 * A Link header (RFC 8288) to the next page; `target` is the path of the page at hand, as the client wrote it. What
 * would end the reference early is encoded.
 */
export const link = (
  target: string,
  query: { readonly prefix: string; readonly limit: number; readonly cursor: string }
): string => {
  const params = new URLSearchParams()
  if (query.prefix !== "") params.set("prefix", query.prefix)
  params.set("limit", String(query.limit))
  params.set("cursor", query.cursor)
  const path = target.replaceAll("<", "%3C").replaceAll(">", "%3E").replaceAll('"', "%22")
  return `<${path}?${params}>; rel="next"`
}
