/** A client of the service, for browsers and Node, without dependencies. Unused parts are not bundled. */
import { followFromEnd, followLog, followNamespace, LogReader } from "./Follow.ts"
import { type KeyValueClient, type KeyValueOptions, keyValueOf, requestsOf } from "./KeyValue.ts"
import type { FollowEvent, FollowStatus, TransportName } from "./Model.ts"
import { listPage } from "./Reads.ts"
import type { CallOptions, WebSocketConstructor } from "./Requests.ts"
import { iterable } from "./Time.ts"
import { eventStream, longPolling, webSocket } from "./Transports.ts"

export type { AgentMessage, Conversation, Message, Part, UserMessage } from "./Conversation/Conversation.ts"
export * as Fold from "./Conversation/Fold.ts"
export * from "./Errors.ts"
export type { BatchOptions, DeleteOptions, DeletePrefixOptions, SetOptions, WriteOptions } from "./KeyValue.ts"
export {
  type BackupOptions,
  type KeyValueClient,
  type KeyValueOptions,
  makeKeyValueClient,
  type StoreBackup
} from "./KeyValue.ts"
export type * from "./Model.ts"
export type { GetOptions, ListOptions, NamespacesOptions, TenantsOptions, VersionOptions } from "./Reads.ts"
export type { CallOptions, JsonFormat, Token, WebSocketConstructor, WebSocketLike } from "./Requests.ts"
export type * from "./SessionModel.ts"
export {
  type CreateOptions,
  type EventsOptions,
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

/** The service, the credential, and how the log is followed. */
export interface ClientOptions extends KeyValueOptions {
  /** The transports to follow the log, the preferred one first; default all. */
  readonly transports?: ReadonlyArray<TransportName>
  /** For hosts without a global WebSocket. */
  readonly WebSocket?: WebSocketConstructor
}

/** The start: the entries of a namespace, or a position of the log. */
export type FollowOptions = CallOptions & {
  /** Called when a connection delivers changes as they happen, and when it is lost. */
  readonly onStatus?: (status: FollowStatus) => void
} & (
    | {
        readonly namespace: string
        /** Only keys that start with this. */
        readonly prefix?: string
        /** Whether the existing entries come first; default true. */
        readonly initial?: boolean
      }
    | {
        /** Only changes with a greater `seq`. */
        readonly after: number
        /** The epoch of the log to which the position belongs, from the list or the event. */
        readonly epoch?: string
        /** Only the changes of this tenant. */
        readonly tenant?: string
        /** Only the changes of this namespace. */
        readonly namespace?: string
        /** Only the changes of keys that start with this; requires a namespace. */
        readonly prefix?: string
      }
  )

/** A client of the key-value store and its change log. Calls fail with a `ClientError`. */
export interface Client extends KeyValueClient {
  /**
   * Follows the change log without gaps or duplicates, over lost connections and restarts of the service.
   *
   * For a namespace, it yields the existing entries unless `initial` is false, then changes; after a `reset` or a
   * `trimmed` it starts again. From a position, it ends with such an event. It reads only as its events are consumed.
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
