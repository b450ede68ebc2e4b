/** Opens WebSockets, with the credential as the host can send it. */
import { refused } from "./Errors.ts"

/** The used part of the WebSocket interface. */
export interface WebSocketLike {
  addEventListener(type: "open" | "error", listener: () => void): void
  addEventListener(type: "message", listener: (event: { readonly data: unknown }) => void): void
  addEventListener(type: "close", listener: (event: { readonly code: number; readonly reason: string }) => void): void
  close(code?: number): void
  send(frame: string): void
}

/** The WebSocket of the host, or that of the package `ws`. Their arguments after the address differ. */
export type WebSocketConstructor = new (url: string, options: never) => WebSocketLike

/** The name and version of the subprotocol. */
const subprotocol = "causeway.v1"

/**
 * Opens a WebSocket, with a credential if there is one. Browsers cannot set headers and send it as the subprotocol
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
    // A browser takes the options for a subprotocol with an invalid name.
    if (!(error instanceof Error && error.name === "SyntaxError")) throw error
    if (!/^[\w!#$%&'*+.^`|~-]*$/.test(`${bearer}`))
      throw refused("The token has characters that a subprotocol cannot have")
    return new Constructor(url, [subprotocol, `bearer.${bearer}`] as never)
  }
}

/** Text in base64url, which is valid in the name of a subprotocol. */
export const base64Url = (text: string): string =>
  btoa(String.fromCharCode(...new TextEncoder().encode(text)))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "")
