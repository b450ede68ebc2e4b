/** The interface for hosts without Effect: plain types over `node:http`. */
import type { IncomingMessage, ServerResponse } from "node:http"
import type { Duplex } from "node:stream"

/** The parts of a request that identify its sender. */
export interface IdentityRequest {
  /**
   * The value of `Authorization`, or what a browser's WebSocket sends instead as the subprotocol
   * `bearer.<base64url>`. `undefined` without one and with several.
   */
  readonly credential: string | undefined
  readonly method: string
  /** The path and the query as the client wrote them. */
  readonly url: string
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string | ReadonlyArray<string> | undefined>>
  readonly remoteAddress: string | undefined
}

/** Who sends a request. */
export interface Identity {
  /** Only read, or read and write. */
  readonly access: "read" | "write"
  /** Recorded as the author of what the request writes, whatever author the client names. */
  readonly actor?: string | undefined
  /** Limits the request to the namespaces `tenant:<tenant>` and `tenant:<tenant>/…`. The gateway requires one. */
  readonly tenant?: string | undefined
  /** When the credential expires, in epoch milliseconds: the gateway closes a connection then. */
  readonly expiresAt?: number | undefined
}

/** A line of the log. */
export interface LogLine {
  readonly level: "TRACE" | "DEBUG" | "INFO" | "WARN" | "ERROR" | "FATAL"
  readonly message: string
  /** Epoch milliseconds. */
  readonly timestamp: number
  readonly annotations: Readonly<Record<string, unknown>>
}

/** A service that is called over HTTP. */
export interface Upstream {
  /** Base address without a slash at its end. */
  readonly url: string
  /** Sent as a bearer credential. */
  readonly apiKey?: string | undefined
}

/** What is served, and its store. Durations are in milliseconds. */
export interface CausewayOptions {
  /** The directory of the databases, which is created if it is missing; or memory, which is lost at the end. */
  readonly store: { readonly directory: string } | "memory"
  /**
   * Identifies the sender of a request, for HTTP and WebSockets alike. `null` is answered 401; a write with read access
   * is answered 403. If it throws, the answer is 500 and the log has the error.
   */
  readonly identity: (request: IdentityRequest) => Identity | null | Promise<Identity | null>
  /** The prefix of all routes, such as `/store`; none by default. */
  readonly prefix?: string | undefined
  /** How long change records are kept; forever by default. */
  readonly retention?: number | undefined
  /** Sessions of agents for clients at `<prefix>/ws`; none by default. */
  readonly gateway?:
    | {
        readonly agentPlatform: Upstream
        readonly inference?: Upstream | undefined
        /** After this time a running session without subscribers and turns is stopped; 30 minutes by default. */
        readonly idleTimeout?: number | undefined
      }
    | undefined
  readonly metrics?:
    | {
        /** Whether `<prefix>/metrics` answers, in the Prometheus text format. */
        readonly prometheus?: boolean | undefined
        /** Whether `<prefix>/api/metrics` answers, in JSON. */
        readonly json?: boolean | undefined
        /** The bearer token that `<prefix>/metrics` requires; without one it is open. */
        readonly token?: string | undefined
        /** Labels of every series, which distinguish several instances in one process. */
        readonly tags?: Readonly<Record<string, string>> | undefined
      }
    | undefined
  /** Whether the console is served at `<prefix>/console`; not by default. */
  readonly console?: boolean | undefined
  /** Whether the reference of the API is served at `<prefix>/docs`; not by default. */
  readonly reference?: boolean | undefined
  /** Origins of web pages that may open WebSockets, in addition to those of the own host. */
  readonly origins?: ReadonlyArray<string> | undefined
  /** Gets each line of the log from level INFO on; by default those from WARN on go to `console.error`. */
  readonly log?: ((line: LogLine) => void) | undefined
  /** How long requests in flight and WebSockets may take at shutdown; then they are closed. 10 seconds by default. */
  readonly gracePeriod?: number | undefined
}

/** A running instance. */
export interface Causeway {
  /**
   * Serves a request of `node:http`, also behind a framework that has not read the body. Requests outside the prefix
   * are passed to `next`, or answered 404 without one. If a framework has stripped its mount point from `url`,
   * `originalUrl` is used.
   */
  readonly handler: (request: IncomingMessage, response: ServerResponse, next?: () => void) => void
  /**
   * Serves the event `upgrade` of a server. Returns `false`, and does not touch the socket, if the path is outside the
   * prefix.
   */
  readonly upgrade: (request: IncomingMessage, socket: Duplex, head: Buffer) => boolean
  /** All series in the Prometheus text format. */
  readonly metrics: () => Promise<string>
  /** Whether the store can be read and written. */
  readonly ready: () => Promise<boolean>
  /**
   * Ends polls, streams, WebSockets and sessions, answers later requests with 503, waits for requests in flight, and
   * closes the store. The host's server continues. Idempotent.
   */
  readonly close: () => Promise<void>
}

/**
 * Starts an instance. The promise is rejected with a message that names the reason if an option is invalid, or if the
 * store cannot be opened.
 */
export type CreateCauseway = (options: CausewayOptions) => Promise<Causeway>
