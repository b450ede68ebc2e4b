/**
 * The interface for hosts without Effect: plain types over `node:http`.
 */
import type { IncomingMessage, ServerResponse } from "node:http"
import type { Duplex } from "node:stream"

/** What a request tells of its sender. */
export interface IdentityRequest {
  /**
   * The value of `Authorization`, or what a browser's WebSocket sends in its place as the subprotocol
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

/** What is served, and on what it stands. Durations are in milliseconds. */
export interface CausewayOptions {
  /** The directory of the databases, which is created where it is missing; or memory, which is gone at the end. */
  readonly store: { readonly directory: string } | "memory"
  /**
   * Says who sends a request, for HTTP and WebSockets alike: `null` is answered 401, one that may only read 403 where it
   * would write. What it throws is a 500 and a line in the log.
   */
  readonly identity: (request: IdentityRequest) => Identity | null | Promise<Identity | null>
  /** The path under which all routes stand, such as `/store`; none by default. */
  readonly prefix?: string | undefined
  /** How long change records are kept; for ever by default. */
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
        /** Labels of every series, by which several instances in one process are told apart. */
        readonly tags?: Readonly<Record<string, string>> | undefined
      }
    | undefined
  /** Whether the console is served at `<prefix>/console`; not by default. */
  readonly console?: boolean | undefined
  /** Whether the reference of the API is served at `<prefix>/docs`; not by default. */
  readonly reference?: boolean | undefined
  /** Origins of web pages that may open WebSockets, beside those of the own host. */
  readonly origins?: ReadonlyArray<string> | undefined
  /** Gets each line of the log from level INFO on; by default those from WARN on go to `console.error`. */
  readonly log?: ((line: LogLine) => void) | undefined
  /** How long requests in flight and WebSockets may take at the end; then they are cut. 10 seconds by default. */
  readonly gracePeriod?: number | undefined
}

/** A running instance. */
export interface Causeway {
  /**
   * Serves a request of `node:http`, with whatever framework in front of it that has not read the body. What is not under
   * the prefix goes to `next`, and is 404 without one. A mount point that a framework has taken off is found again by its
   * `originalUrl`.
   */
  readonly handler: (request: IncomingMessage, response: ServerResponse, next?: () => void) => void
  /** Serves the event `upgrade` of a server. Returns `false`, and leaves the socket alone, where the path is not ours. */
  readonly upgrade: (request: IncomingMessage, socket: Duplex, head: Buffer) => boolean
  /** All series in the Prometheus text format. */
  readonly metrics: () => Promise<string>
  /** Whether the store can be read and written. */
  readonly ready: () => Promise<boolean>
  /**
   * Ends polls, streams, WebSockets and sessions, answers later requests with 503, waits for requests in flight, and
   * closes the store. The host's server goes on. Idempotent.
   */
  readonly close: () => Promise<void>
}

/**
 * Starts an instance. It is rejected where an option is invalid, or where the store cannot be opened, with a message that
 * says why.
 */
export type CreateCauseway = (options: CausewayOptions) => Promise<Causeway>
