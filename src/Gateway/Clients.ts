/**
 * What all connections of clients share, whatever protocol they speak: how their requests are executed and their events
 * read, and what limits them.
 */
import { Config, Context, Effect, Layer, type Scope } from "effect"
import * as DebugLog from "../base/Observability/DebugLog.ts"
import * as MetricTags from "../base/Observability/MetricTags.ts"
import * as Setting from "../base/Setting.ts"
import { ServiceUnavailable } from "../Http/ApiError.ts"
import { makeReplays, type Replays } from "./Clients/Replays.ts"
import { FairPool } from "./FairPool.ts"
import * as Forwarding from "./Forwarding.ts"
import { makeFileMemory } from "./Requests.ts"
import { Sessions } from "./Sessions.ts"

/** The limits of connections. */
export interface Settings {
  /**
   * Maximum number of WebSockets, event streams and waiting polls, for all tenants together. Above it further ones are
   * refused with 503.
   */
  readonly connections: number
  /**
   * Unsent bytes of one connection above which it receives no events and its requests are not read. The memory of a
   * client is bounded by this and one answer.
   */
  readonly unsentBytes: number
  /** Maximum bytes of unsent answers to file calls, and of unsent conversations, for all clients together. */
  readonly fileBytes: number
}

/** The limits unless configured. */
export const defaults: Settings = { connections: 10_000, unsentBytes: 1024 * 1024, fileBytes: 512 * 1024 * 1024 }

/** The limits as configuration variables. */
export const config: Config.Config<Settings> = Config.all({
  connections: Setting.integer("LIMIT_CONNECTIONS", {
    description:
      "Maximum number of gateway WebSockets (`/ws`), event streams and waiting polls of sessions at a time; those of the change feed count towards LIMIT_FOLLOWERS",
    default: defaults.connections,
    min: 1,
    max: 1_000_000
  }),
  unsentBytes: Setting.integer("LIMIT_CLIENT_UNSENT_BYTES", {
    description: "Unsent bytes of a gateway WebSocket or event stream above which it receives no events",
    default: defaults.unsentBytes,
    min: 1024,
    max: 64 * 1024 * 1024
  }),
  fileBytes: Setting.integer("LIMIT_FILE_BYTES", {
    description:
      "Maximum bytes of files and conversations that are being sent to all clients together; each counts as 32 MiB until its size is known. Streams of AG-UI and the AI SDK may keep half as much of conversations",
    default: defaults.fileBytes,
    min: 64 * 1024 * 1024,
    max: 1024 ** 4
  })
})

/** The slot of a connection. */
export interface Slot {
  /** Lets others take the slot from now on. `onReclaim` is called when it was taken: the connection has to end. */
  readonly offer: (connection: { readonly onReclaim: () => void }) => void
  /** Idempotent. */
  readonly release: () => void
}

/** What connections share. */
export interface ClientsShape {
  readonly sessions: Context.Tag.Service<Sessions>
  /** Executes a request, which may be for a session of another node. */
  readonly execute: Forwarding.Execute
  /** Reads the events that clients have missed. */
  readonly replays: Replays
  /** Takes the slot of a connection of a tenant, until it is released. Fails if all are in use. */
  readonly takeSlot: (tenant: string) => Slot | ServiceUnavailable
  /** Unsent bytes of one connection above which it receives no events. */
  readonly unsentBytes: number
  /** The memory of file calls, and of conversations while they are read and sent. */
  readonly files: FairPool
  /** The memory of what streams keep of conversations, and of inputs that wait: half as much. */
  readonly kept: FairPool
  /** Logs frames if `LOG_LEVEL` is debug. */
  readonly debug: DebugLog.DebugLog | undefined
  /** The tags of metrics. */
  readonly tags: MetricTags.MetricTags
}

/** What connections share. */
export class Clients extends Context.Tag("causeway/GatewayClients")<Clients, ClientsShape>() {}

const make = ({
  connections: capacity,
  fileBytes,
  unsentBytes
}: Settings): Effect.Effect<ClientsShape, never, Sessions | Scope.Scope> =>
  Effect.gen(function* () {
    // The newest connection of the tenant that has the most makes room for another tenant's, so that the oldest are kept.
    const slots = new FairPool({ name: "connections", capacity, reclaimFirst: "newest" })
    return {
      sessions: yield* Sessions,
      execute: yield* Forwarding.make,
      replays: yield* makeReplays,
      takeSlot: tenant =>
        slots.take(tenant, 1) ??
        ServiceUnavailable.later(`There are ${slots.used} connections; the limit is ${capacity}`),
      unsentBytes,
      files: makeFileMemory(fileBytes),
      kept: new FairPool({ name: "memory for conversations", capacity: fileBytes / 2, maxOfOne: (fileBytes * 3) / 8 }),
      debug: yield* DebugLog.make,
      tags: yield* MetricTags.current
    }
  })

/** Serves connections until the scope closes. */
export const layer = (settings: Settings): Layer.Layer<Clients, never, Sessions> =>
  Layer.scoped(Clients, make(settings))
