/**
 * Origins of web pages (RFC 6454). Browsers let any page open a WebSocket to any server, so the server has to check.
 */
import { Context, Option } from "effect"

/** An origin in the form that browsers send, or nothing. */
const parse = (text: string): Option.Option<string> => {
  if (!URL.canParse(text)) return Option.none()
  const { origin, protocol, pathname, search, hash, username, password } = new URL(text)
  if (text.includes("*")) return Option.none()
  const isBare = pathname === "/" && `${search}${hash}${username}${password}` === ""
  return isBare && (protocol === "http:" || protocol === "https:") ? Option.some(origin) : Option.none()
}

/** Origins with commas between. */
export const parseList = (text: string): Option.Option<ReadonlyArray<string>> =>
  Option.all(
    text
      .split(",")
      .map(part => part.trim())
      .filter(part => part !== "")
      .map(parse)
  )

/** Whether a host is this machine: of a URL, or an address to listen at. */
export const isLoopback = (host: string): boolean => /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\]|::1)$/i.test(host)

/** Whether the page comes from the host that it connects to, with or without an explicit default port. */
const isSame = (origin: string, host: string): boolean => {
  const { protocol } = new URL(origin)
  const own = `${protocol}//${host}`
  return URL.canParse(own) && new URL(own).origin === origin
}

/** Whether a page of an origin may open a WebSocket to a host. A client without an origin is not a browser, and may. */
export type Admits = (origin: string | undefined, host: string | undefined) => boolean

const admitting =
  (allowed: ReadonlyArray<string>, isOwn: (origin: string, host: string) => boolean): Admits =>
  (origin, host) => {
    if (origin === undefined) return true
    return Option.match(parse(origin), {
      onNone: () => false,
      onSome: known => allowed.includes(known) || (host !== undefined && isOwn(known, host))
    })
  }

/** Whether a page of an origin may connect to a host. `null`, the origin of sandboxed pages, may not. */
export const admits = (allowed: ReadonlyArray<string>): Admits => admitting(allowed, isSame)

/**
 * As {@link admits}, but pages of the same host only from this machine: without tokens, a page of any other name could
 * connect by DNS rebinding.
 */
export const admitsLoopback = (allowed: ReadonlyArray<string>): Admits =>
  admitting(allowed, (origin, host) => isLoopback(new URL(origin).hostname) && isSame(origin, host))

/**
 * Which pages may follow the change log by WebSocket; those of the service's own host, unless a layer says otherwise.
 */
export class FeedOrigins extends Context.Reference<FeedOrigins>()("causeway/FeedOrigins", {
  defaultValue: (): Admits => admits([])
}) {}
