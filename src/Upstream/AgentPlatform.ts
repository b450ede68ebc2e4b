/**
 * The agent platform, which runs the agents' instances and stores their files. This is the port; the client of a real
 * platform is `AgentPlatformClient`.
 */
import {
  Config,
  Context,
  type Duration,
  type Effect,
  type Option,
  type Redacted,
  Schema,
  type Scope,
  type Stream
} from "effect"
import * as Setting from "../base/Setting.ts"
import type { Health } from "./HealthProbe.ts"
import { eventBytes, type PlatformEvent, type PlatformFrame, unfinishedBytes } from "./PlatformEvent.ts"
import { Reason } from "./Resilience/UpstreamFailure.ts"
import type { FileContent, FileEntry, FileIteration } from "./Workspace.ts"

/** The agent platform could not be reached, failed, or refused the request. */
export class AgentPlatformConnectionError extends Schema.TaggedError<AgentPlatformConnectionError>()(
  "AgentPlatformConnectionError",
  {
    operation: Schema.String,
    /** The kind of failure; `not_configured` if there is no platform. */
    reason: Schema.Union(Reason, Schema.Literal("not_configured")),
    /** The HTTP status of the platform's answer, if there was one; 503 while the breaker is open. */
    statusCode: Schema.optional(Schema.Int),
    /** Whether this try or an earlier one may have taken effect. */
    isInDoubt: Schema.optional(Schema.Boolean),
    message: Schema.String
  }
) {}

/** How long a frame waits, and whether it is still wanted. */
export interface SendOptions {
  /** How long to wait for earlier frames and for a connection; 15 s if absent. */
  readonly timeout?: Duration.DurationInput | undefined
  /** Called synchronously right before the frame is sent; if it returns `false`, the frame is dropped. */
  readonly claim?: (() => boolean) | undefined
}

/** Sends a frame. After a failure the frame was not sent. */
export type Send<E> = (frame: PlatformFrame, options?: SendOptions) => Effect.Effect<void, E>

/** `closed` is final: the instance has ended, the platform refuses the connection, or the scope has ended. */
export type ConnectionState = "connected" | "reconnecting" | "closed"

/**
 * Messages that were sent on a lost connection and may or may not have arrived. It follows all events of that
 * connection.
 */
export class Undelivered {
  constructor(readonly turnIds: ReadonlyArray<string>) {}
}

/** What the consumer of a connection takes. */
export type Received = PlatformEvent | Undelivered

/** The values that were waiting (at least one unless the connection has ended), and whether it has ended. */
export type Taken = readonly [values: ReadonlyArray<Received>, isDone: boolean]

/** A connection to one instance. */
export interface InstanceConnection<E> {
  /**
   * Sends a frame, at most once and in the order of calls. Waits while it reconnects.
   *
   * After a failure the frame was not sent. After a success it may still be lost with the connection; lost messages are
   * reported as {@link Undelivered}.
   */
  readonly send: Send<E>
  /** Waits until it is connected. Fails if it is closed. */
  readonly ready: Effect.Effect<void, E>
  /**
   * Takes the instance's events in order, and undelivered messages, for one consumer. It is done when the instance has
   * ended, and fails when the platform refuses the connection. A slow consumer causes back-pressure on the network. The
   * effect is direct.
   */
  readonly take: Effect.Effect<Taken, E>
  /** The current state and its changes. A slow consumer may miss some, but never the last one. */
  readonly states: Stream.Stream<ConnectionState>
}

/** The parameters of an instance. */
export interface CreateInstance {
  readonly agentType: string
  /** Where and how the agent is deployed; passed on unchanged. */
  readonly deployment: unknown
  /** Secrets for the agent, by name. */
  readonly secrets: Readonly<Record<string, Redacted.Redacted>>
  /** Environment variables of the agent, by name. */
  readonly environment: Readonly<Record<string, string>>
  /** The tenant of the instance. Failures for one tenant do not block others. */
  readonly tenant?: string
  /** The id of the session, for an agent that gets its conversation with each message. */
  readonly sessionId?: string
  /** The idempotency key: a repeated creation returns the same instance. By default each call has a new key. */
  readonly idempotencyKey?: string
  /** Whether it is a background call that only determines the id of the instance; see `StopInstance.isBackground`. */
  readonly isBackground?: boolean
}

/** How an instance is stopped. */
export interface StopInstance {
  /** Whether no caller waits for it. Then it is tried once, and is never the probe of a breaker. */
  readonly isBackground?: boolean
}

/** A request for a file was refused before anything was sent. */
export class InvalidFileRequest extends Schema.TaggedError<InvalidFileRequest>()("InvalidFileRequest", {
  message: Schema.String
}) {}

/** Why a file call failed: the platform, or an invalid request. */
export type FileCallError = AgentPlatformConnectionError | InvalidFileRequest

/** Where agents are reached, for operators. */
export interface AgentAddress {
  /** Null for all types without an address of their own. */
  readonly agentType: string | null
  /** Without credentials, query and fragment. */
  readonly address: string
}

/** An address as operators may see it. A query may hold a credential. */
export const addressOf = (agentType: string | null, url: string): AgentAddress => {
  const { origin, pathname } = new URL(url)
  return { agentType, address: `${origin}${pathname === "/" ? "" : pathname}` }
}

/** The agent platform. */
export class AgentPlatform extends Context.Tag("causeway/AgentPlatform")<
  AgentPlatform,
  {
    /** Creates an instance and returns its id. After a failure, `isInDoubt` says whether an instance may exist. */
    readonly create: (request: CreateInstance) => Effect.Effect<string, AgentPlatformConnectionError>
    /**
     * Stops an instance. An instance that no longer exists counts as stopped. Stops have a circuit breaker for each
     * instance, so that their failures block neither other calls nor stops of other instances.
     */
    readonly stop: (instanceId: string, options?: StopInstance) => Effect.Effect<void, AgentPlatformConnectionError>
    /**
     * Connects to an instance, and reconnects until the scope or the instance ends. `after` is the id of the last event
     * that was received before.
     */
    readonly connect: (
      instanceId: string,
      options?: { readonly after?: string | undefined }
    ) => Effect.Effect<InstanceConnection<AgentPlatformConnectionError>, AgentPlatformConnectionError, Scope.Scope>
    /** Files below a directory of the workspace (by default its root), `depth` levels down (by default 1). */
    readonly listFiles: (
      instanceId: string,
      options?: { readonly path?: string | undefined; readonly depth?: number | undefined }
    ) => Effect.Effect<ReadonlyArray<FileEntry>, FileCallError>
    /** The current content of a file. */
    readonly readFile: (instanceId: string, path: string) => Effect.Effect<FileContent, FileCallError>
    /** All iterations of a file, the oldest first. */
    readonly fileHistory: (
      instanceId: string,
      path: string
    ) => Effect.Effect<ReadonlyArray<FileIteration>, FileCallError>
    /** The content of a file at an iteration. */
    readonly fileAtIteration: (
      instanceId: string,
      path: string,
      iteration: number
    ) => Effect.Effect<FileContent, FileCallError>
    /** The platform's health, within 2 s; `None` if there is no platform. */
    readonly probe: Effect.Effect<Option.Option<Health>>
    /** Where the agents are, if it is known. */
    readonly addresses?: ReadonlyArray<AgentAddress>
  }
>() {}

/** The address and credential of the agent platform; without `url` sessions cannot be activated. */
export interface Settings {
  /** Base address without a slash at its end. */
  readonly url: Option.Option<string>
  readonly apiKey: Option.Option<Redacted.Redacted>
  /** The maximum bytes of an event; 1 MiB if absent. */
  readonly eventBytes?: number
  /** The maximum bytes of events that have not arrived whole, over all instances; 128 MiB if absent. */
  readonly unfinishedBytes?: number
}

/** The settings as configuration variables. */
export const config: Config.Config<Settings> = Config.all({
  url: Setting.optionalBaseUrl("AGENT_PLATFORM_URL", {
    description: "Base address of the agent platform; sessions cannot be activated without it"
  }),
  apiKey: Setting.optionalCredential("AGENT_PLATFORM_API_KEY", {
    description: "Bearer credential for the agent platform"
  }),
  eventBytes: Setting.integer("LIMIT_EVENT_BYTES", {
    description:
      "Largest event of the agent platform, in bytes of its JSON text; a larger one is left out. Each MiB holds up the events of all other sessions for about 20 ms",
    default: eventBytes.default,
    min: eventBytes.least,
    max: eventBytes.most
  }),
  unfinishedBytes: Setting.integer("LIMIT_TOTAL_EVENT_BYTES", {
    description:
      "Bytes of events of the agent platform that have not arrived whole, over all instances; above it the connection with the most is made again",
    default: unfinishedBytes.default,
    min: unfinishedBytes.least,
    max: unfinishedBytes.most
  })
})
