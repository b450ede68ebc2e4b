/**
 * A client of the service, for browsers and Node, without dependencies. What is not used is not bundled.
 */
import { eventStream } from "./EventStreamTransport.ts"
import { followFromEnd, followLog, followNamespace } from "./Follow.ts"
import { listPage } from "./KeyValue/Reads.ts"
import { type KeyValueClient, type KeyValueOptions, keyValueOf, requestsOf } from "./KeyValue.ts"
import { LogReader, longPolling } from "./LogReader.ts"
import type { FollowEvent, FollowStatus, TransportName } from "./Model.ts"
import type { CallOptions } from "./Requests.ts"
import { iterable } from "./Time.ts"
import type { WebSocketConstructor } from "./WebSocket.ts"
import { webSocket } from "./WebSocketTransport.ts"

export * from "./Errors.ts"
export type { BackupOptions, StoreBackup } from "./KeyValue/Backup.ts"
export type { VersionOptions } from "./KeyValue/Entry.ts"
export type { GetOptions, ListOptions, NamespacesOptions, TenantsOptions } from "./KeyValue/Reads.ts"
export type { BatchOptions, DeleteOptions, DeletePrefixOptions, SetOptions, WriteOptions } from "./KeyValue/Writes.ts"
export { type KeyValueClient, type KeyValueOptions, makeKeyValueClient } from "./KeyValue.ts"
export type * from "./Model.ts"
export type { CallOptions, JsonFormat, Token } from "./Requests.ts"
export * from "./SessionErrors.ts"
export type * from "./SessionModel.ts"
export {
  type CreateOptions,
  type InterruptOptions,
  type Launch,
  type ListFilesOptions,
  type ListSessionsOptions,
  makeSessions,
  type SendOptions,
  type SentMessage,
  type SessionPage,
  type Sessions,
  type SessionsOptions,
  type StartOptions,
  type SubscribeOptions
} from "./Sessions.ts"
export type { Clock } from "./Time.ts"
export type { WebSocketConstructor, WebSocketLike } from "./WebSocket.ts"

/** Where the service is, who asks, and how the log is followed. */
export interface ClientOptions extends KeyValueOptions {
  /** The ways to follow the log, the best one first; all without it. */
  readonly transports?: ReadonlyArray<TransportName>
  /** For hosts that have no WebSocket of their own. */
  readonly WebSocket?: WebSocketConstructor
}

/** Where to begin: at the entries of a namespace, or at a position of the log. */
export type FollowOptions = CallOptions & {
  /** Is told when changes come in as they happen, and when they do not. */
  readonly onStatus?: (status: FollowStatus) => void
} & (
    | {
        readonly namespace: string
        /** Only keys that start with this. */
        readonly prefix?: string
        /** Whether the entries that are there are told first; true without it. */
        readonly initial?: boolean
      }
    | {
        /** Only changes with a greater `seq`. */
        readonly after: number
        /** The log that the position belongs to, as the list or the event told that it is from. */
        readonly epoch?: string
        /** Only the changes of this tenant. */
        readonly tenant?: string
        /** Only the changes of this namespace. */
        readonly namespace?: string
        /** Only the changes of keys that start with this; it takes a namespace. */
        readonly prefix?: string
      }
  )

/** A client of the key-value store and its change log. Calls fail with a `ClientError`. */
export interface Client extends KeyValueClient {
  /**
   * Follows the change log without gap or double, over lost connections and restarts of the service.
   *
   * Begun at a namespace it tells the entries that are there, unless `initial` is false, then what changes; after a
   * `reset` or a `trimmed` it begins anew. Begun at a position it ends with such an event. It reads on as its events are
   * taken.
   */
  readonly follow: (options: FollowOptions) => AsyncIterable<FollowEvent>
}

/** Makes a client. */
export const makeClient = (options: ClientOptions): Client => {
  const requests = requestsOf(options)
  const { clock } = requests
  const { WebSocket = globalThis.WebSocket, transports: names = ["webSocket", "serverSentEvents", "longPolling"] } =
    options
  const available = {
    webSocket: WebSocket && webSocket(requests, WebSocket),
    serverSentEvents: eventStream(requests),
    longPolling: longPolling(requests)
  }
  const transports = names.flatMap(name => available[name] ?? [])
  return {
    ...keyValueOf(requests),
    follow: followOptions =>
      iterable(clock, followOptions.signal, signal => {
        const reader = new LogReader(requests, transports, signal, followOptions.onStatus)
        if ("after" in followOptions) {
          const { after, epoch, namespace, prefix, tenant } = followOptions
          return followLog(reader, { after, epoch: epoch || undefined }, { tenant, namespace, prefix })
        }
        const { initial = true, namespace, prefix = "" } = followOptions
        const part = { tenant: undefined, namespace, prefix }
        if (!initial) return followFromEnd(reader, part)
        return followNamespace(reader, part, cursor => listPage(requests, namespace, { prefix, signal }, cursor))
      })
  }
}
