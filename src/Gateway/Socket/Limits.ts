import { Config, Duration } from "effect"
import * as Setting from "../../Setting.ts"

/** The limits of connections. */
export interface Settings {
  /** Connections at a time; beyond, a request is refused with 503. */
  readonly connections: number
  /**
   * Bytes that may lie unsent for one connection before it is sent no more events and its requests are not read.
   * The memory of a client is bounded by this and one answer.
   */
  readonly unsentBytes: number
  /** Bytes of the answers of file calls, until they are sent. */
  readonly fileBytes: number
}

export const defaults: Settings = { connections: 10_000, unsentBytes: 1024 * 1024, fileBytes: 512 * 1024 * 1024 }

/** The limits as configuration variables. */
export const config: Config.Config<Settings> = Config.all({
  connections: Setting.integer("LIMIT_CONNECTIONS", {
    description: "Most WebSocket connections of clients at a time",
    default: defaults.connections,
    min: 1,
    max: 1_000_000
  }),
  unsentBytes: Setting.integer("LIMIT_CLIENT_UNSENT_BYTES", {
    description: "Bytes that may lie unsent for a client before it gets nothing more",
    default: defaults.unsentBytes,
    min: 1024,
    max: 64 * 1024 * 1024
  }),
  fileBytes: Setting.integer("LIMIT_FILE_BYTES", {
    description:
      "Bytes of files on their way to all clients together; a call takes 32 MiB of them until it is answered",
    default: defaults.fileBytes,
    min: 64 * 1024 * 1024,
    max: 1024 ** 4
  })
})

/** In milliseconds. */
export const timing = {
  pingInterval: 25_000,
  pongTimeout: 10_000,
  /** As the service drains its clients are closed over this interval, so that they do not all reconnect at once. */
  drainInterval: 2_000
} as const

/** Messages beyond the rate limit that are answered with an error before the connection is closed. */
export const warnings = 100

/** File calls of one connection at a time, as their answers may be large; others wait. */
export const fileCalls = 4

const MiB = 1024 * 1024

/** Most bytes in the answer to a file call: the platform's client takes no more. */
export const fileBytes = { list: 8 * MiB, content: 32 * MiB } as const

/** A client that has read nothing for so many milliseconds loses the memory of its files where others need it. */
export const stall = 1_000

/** How long the authentication of a client may take. */
export const handshake = Duration.seconds(10)
