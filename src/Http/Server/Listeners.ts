import type { IncomingMessage, ServerResponse } from "node:http"
import type { Duplex } from "node:stream"

/** Says whether a request's target is one where connections can become WebSockets. */
export type Upgradable = (target: string) => boolean

/** What a `node:http` server calls. */
export interface Listeners {
  readonly request: (request: IncomingMessage, response: ServerResponse) => void
  readonly upgrade: (request: IncomingMessage, socket: Duplex, head: Buffer) => void
  /** A handshake anywhere else is an ordinary request. */
  readonly upgradable: Upgradable
}
