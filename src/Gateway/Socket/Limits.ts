import { Config, Duration } from "effect"
import * as Setting from "../../Setting.ts"

/** What connections may cost at most. */
export interface Settings {
  /** Connections at a time; one more is refused with 503. */
  readonly connections: number
  /**
   * Bytes that may lie unsent for one connection before it gets no more events and its requests are no longer read.
   * What is held for a client is bounded by this and one answer.
   */
  readonly unsentBytes: number
  /** Bytes of file calls' answers, until they were sent. */
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

/** All in milliseconds. */
export const timing = {
  /** Between two pings. */
  heartbeat: 25_000,
  /** So long may a client take to give a sign of life after a ping. */
  answer: 10_000,
  /** So long may a client leave what it was sent unread. */
  drain: 30_000,
  /** So long may a closing handshake take. */
  close: 5_000,
  /** When the server goes away its clients are sent away over this time, so that they do not all return at once. */
  spread: 2_000
} as const

/** Refused messages that a client may ignore before its connection is closed. */
export const warnings = 100

/** File calls of one connection at a time: their answers may be large. Others wait. */
export const fileCalls = 4

const MiB = 1024 * 1024

/** Bytes of one answer to a file call at most: the platform's client takes no more. */
export const fileBytes = { list: 8 * MiB, content: 32 * MiB } as const

/** A client of which nothing was read for so long, in milliseconds, has its files taken back where others need room. */
export const stall = 1_000

/** How long a client has from the end of the HTTP handshake's reading to being told who it is. */
export const handshake = Duration.seconds(10)
