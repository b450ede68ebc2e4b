import { refused } from "./Errors.ts"

/** What is used of a WebSocket. */
export interface WebSocketLike {
  addEventListener(type: "open" | "error", listener: () => void): void
  addEventListener(type: "message", listener: (event: { readonly data: unknown }) => void): void
  addEventListener(type: "close", listener: (event: { readonly code: number; readonly reason: string }) => void): void
  close(code?: number): void
  send(frame: string): void
}

/** The WebSocket of the host, or one such as that of the package `ws`. What it takes beside the address differs. */
export type WebSocketConstructor = new (url: string, options: never) => WebSocketLike

/** The name and version of the protocol that is spoken over WebSockets. */
const subprotocol = "causeway.v1"

/**
 * Opens a WebSocket with a credential, if there is one. Browsers, which cannot set headers, send it as the subprotocol
 * `bearer.<bearer>`.
 */
export const connect = (
  Constructor: WebSocketConstructor,
  url: string,
  token: string | undefined,
  bearer: string | undefined
): WebSocketLike => {
  if (token === undefined) return new Constructor(url, [subprotocol] as never)
  try {
    return new Constructor(url, { headers: { authorization: `Bearer ${token}` } } as never)
  } catch (error) {
    // A browser takes the options for the name of a subprotocol, which they cannot be.
    if (!(error instanceof Error && error.name === "SyntaxError")) throw error
    if (!/^[\w!#$%&'*+.^`|~-]*$/.test(`${bearer}`))
      throw refused("The token has characters that a subprotocol cannot have")
    return new Constructor(url, [subprotocol, `bearer.${bearer}`] as never)
  }
}

/** Text in base64url, as the name of a subprotocol can hold it. */
export const base64Url = (text: string): string =>
  btoa(String.fromCharCode(...new TextEncoder().encode(text)))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "")
