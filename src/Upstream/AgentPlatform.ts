/**
 * The agent platform: it runs the agents' instances and keeps their files. This is the port; the client of a real
 * platform is `AgentPlatformClient`.
 */
import { Config, Context, type Effect, Option, Redacted, Schema, type Scope } from "effect"
import * as Setting from "../Setting.ts"
import type { Health } from "./HealthProbe.ts"
import type { InstanceConnection } from "./InstanceConnection.ts"
import { Reason } from "./Resilience/UpstreamFailure.ts"
import type { FileContent, FileEntry, FileIteration } from "./Workspace.ts"

/** The agent platform could not be reached, failed, or did not do what it was asked. */
export class AgentPlatformConnectionError extends Schema.TaggedError<AgentPlatformConnectionError>()(
  "AgentPlatformConnectionError",
  {
    operation: Schema.String,
    /** The kind of failure; `not_configured` if there is no platform. */
    reason: Schema.Union(Reason, Schema.Literal("not_configured")),
    /** The HTTP status of the platform's answer, if there was one; 503 while the breaker is open. */
    statusCode: Schema.optional(Schema.Int),
    /** Whether this try or an earlier one may have taken effect nevertheless. */
    isInDoubt: Schema.optional(Schema.Boolean),
    message: Schema.String
  }
) {}

/** What an instance is made from. */
export interface CreateInstance {
  readonly agentType: string
  /** Where and how the agent is deployed; passed on unchanged. */
  readonly deployment: unknown
  /** Secrets for the agent, by name. */
  readonly secrets: Readonly<Record<string, Redacted.Redacted>>
  /** Environment variables of the agent, by name. */
  readonly environment: Readonly<Record<string, string>>
  /** Who the instance is for. Failures for one tenant alone do not block others. */
  readonly tenant?: string
  /** Creating with the same key again gives the same instance. By default each call has a new key. */
  readonly idempotencyKey?: string
  /** Asks in the background which instance the key led to; see `StopInstance.isBackground`. */
  readonly isBackground?: boolean
}

/** How an instance is stopped. */
export interface StopInstance {
  /** Nobody waits for it: it is tried once, and is never the probe of a breaker. */
  readonly isBackground?: boolean
}

/** A request for a file was refused before anything was sent. */
export class InvalidFileRequest extends Schema.TaggedError<InvalidFileRequest>()("InvalidFileRequest", {
  message: Schema.String
}) {}

export type FileCallError = AgentPlatformConnectionError | InvalidFileRequest

/** The agent platform. */
export class AgentPlatform extends Context.Tag("causeway/AgentPlatform")<
  AgentPlatform,
  {
    /** Creates an instance and returns its id. The failure says whether one may exist nevertheless. */
    readonly create: (request: CreateInstance) => Effect.Effect<string, AgentPlatformConnectionError>
    /**
     * Stops an instance; one that is gone counts as stopped. Stops have a circuit breaker for each instance, so that
     * their failures block no other calls, nor stops of other instances.
     */
    readonly stop: (instanceId: string, options?: StopInstance) => Effect.Effect<void, AgentPlatformConnectionError>
    /**
     * Connects to an instance, and reconnects until the scope ends or the instance is gone.
     * `after` is the id of the last event that was received before.
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
  }
>() {}

export interface Settings {
  /** Base address without a slash at its end. */
  readonly url: Option.Option<string>
  readonly apiKey: Option.Option<Redacted.Redacted>
}

/** The settings as configuration variables. */
export const config: Config.Config<Settings> = Config.all({
  url: Setting.baseUrl("AGENT_PLATFORM_URL", {
    description: "Base address of the agent platform; sessions cannot be activated without it",
    default: undefined,
    shown: "none"
  }).pipe(Config.map(Option.fromNullable)),
  apiKey: Setting.optionalCredential("AGENT_PLATFORM_API_KEY", {
    description: "Bearer credential for the agent platform",
    shown: "none"
  }).pipe(Config.map(Option.filter(key => Redacted.value(key) !== "")))
})
