import type { IncomingMessage } from "node:http"
import type { Duplex } from "node:stream"
import { Context, type Duration, type Effect, Schema, type Stream } from "effect"
import type { ChangeQuery, HistoryTrimmed } from "./ChangeLog.ts"
import type { StoreUnavailable } from "./Store.ts"

/** A request to become a WebSocket, as `node:http` hands it over in its `upgrade` event. */
export interface Upgrade {
  readonly request: IncomingMessage
  readonly socket: Duplex
  readonly head: Buffer
}

/** The request is no WebSocket handshake, or the handshake went wrong. */
export class UpgradeFailed extends Schema.TaggedError<UpgradeFailed>()("UpgradeFailed", {
  reason: Schema.String
}) {}

/** A page of the log as JSON text, shared by all readers that stand at the same place. */
export interface EncodedPage {
  /** The text of the array of change records. */
  readonly changes: string
  readonly count: number
  readonly lastSeq: number
}

/** Followers of the change log: polls that wait, Server-Sent Events and WebSockets. */
export class ChangeFeed extends Context.Tag("causeway/ChangeFeed")<
  ChangeFeed,
  {
    /** A page; where there is nothing yet, the first change or the end of `wait`, whichever comes first. */
    readonly poll: (
      query: ChangeQuery,
      wait: Duration.Duration
    ) => Effect.Effect<EncodedPage, StoreUnavailable | HistoryTrimmed>
    /** Server-Sent Events from `query.after` on; it ends when the service drains or the reader falls out of the history. */
    readonly events: (query: ChangeQuery) => Effect.Effect<Stream.Stream<Uint8Array>, StoreUnavailable | HistoryTrimmed>
    /** Makes a connection a follower. The outer effect ends with the handshake, the inner with the connection. */
    readonly accept: (
      upgrade: Upgrade,
      query: ChangeQuery
    ) => Effect.Effect<Effect.Effect<void>, UpgradeFailed | StoreUnavailable | HistoryTrimmed>
  }
>() {}
