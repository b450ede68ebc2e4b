/**
 * The agent platform: it runs the agents' instances and keeps their files. This is the port; the client of a real
 * platform is `AgentPlatformClient`.
 */
import { Config, Context, type Effect, Option, Redacted, Schema, type Scope } from "effect"
import * as Setting from "../Setting.ts"
import * as BaseUrl from "./BaseUrl.ts"
import type { InvalidFileRequest } from "./FilePath.ts"
import type { Health } from "./HealthProbe.ts"
import type { InstanceConnection } from "./InstanceConnection.ts"
import { Reason } from "./UpstreamFailure.ts"
import type { FileContent, FileEntry, FileIteration } from "./Workspace.ts"

/** The agent platform could not be reached, failed, or did not do what it was asked. */
export class AgentPlatformConnectionError extends Schema.TaggedError<AgentPlatformConnectionError>()(
  "AgentPlatformConnectionError",
  {
    operation: Schema.String,
    /** What kind of failure it is; `not_configured` where there is no platform at all. */
    reason: Schema.Union(Reason, Schema.Literal("not_configured")),
    /** The HTTP status that the platform answered with, where it answered; 503 while the breaker is open. */
    statusCode: Schema.optional(Schema.Int),
    /** Whether the platform may have done what was asked all the same, in this try or an earlier one. */
    isDoubtful: Schema.optional(Schema.Boolean),
    message: Schema.String
  }
) {}

/** What an instance is made from. */
export interface CreateInstance {
  readonly agentType: string
  /** Describes where and how the agent is deployed; passed on as it is. */
  readonly deployment: unknown
  /** Secrets for the agent, by name. */
  readonly secrets: Readonly<Record<string, Redacted.Redacted>>
  /** Environment variables of the agent, by name. */
  readonly environment: Readonly<Record<string, string>>
  /** Whose instance it will be: what fails for one tenant alone keeps no other out. */
  readonly tenant?: string
  /** Creating again with the same key gives the same instance; a fresh key for each call where there is none. */
  readonly idempotencyKey?: string
  /** Asked behind everybody's back, to learn what the key has led to; as with `StopInstance.isAside`. */
  readonly isAside?: boolean
}

/** How an instance is stopped. */
export interface StopInstance {
  /** Nobody waits for it: one try, which takes no other call's place. */
  readonly isAside?: boolean
}

/** What file calls fail with: the platform, or a request that was refused before anything was sent. */
export type FileCallError = AgentPlatformConnectionError | InvalidFileRequest

/** The agent platform. */
export class AgentPlatform extends Context.Tag("causeway/AgentPlatform")<
  AgentPlatform,
  {
    /** Creates an instance and tells its id. The failure says whether there may be one all the same. */
    readonly create: (request: CreateInstance) => Effect.Effect<string, AgentPlatformConnectionError>
    /**
     * Stops an instance; one that is gone already counts as stopped. A platform that fails to keeps no other call out,
     * not even other stops: each instance has a breaker of its own for them.
     */
    readonly stop: (instanceId: string, options?: StopInstance) => Effect.Effect<void, AgentPlatformConnectionError>
    /**
     * Connects to an instance, and keeps connected until the scope ends or the instance is gone.
     * `after` is the id of the last event that is known already.
     */
    readonly connect: (
      instanceId: string,
      options?: { readonly after?: string | undefined }
    ) => Effect.Effect<InstanceConnection<AgentPlatformConnectionError>, AgentPlatformConnectionError, Scope.Scope>
    /** Files below a directory of the workspace (its root without `path`), `depth` levels down (1 where absent). */
    readonly listFiles: (
      instanceId: string,
      options?: { readonly path?: string | undefined; readonly depth?: number | undefined }
    ) => Effect.Effect<ReadonlyArray<FileEntry>, FileCallError>
    /** A file as it is now. */
    readonly readFile: (instanceId: string, path: string) => Effect.Effect<FileContent, FileCallError>
    /** All iterations of a file, the oldest first. */
    readonly fileHistory: (
      instanceId: string,
      path: string
    ) => Effect.Effect<ReadonlyArray<FileIteration>, FileCallError>
    /** A file as it was at an iteration. */
    readonly fileAtIteration: (
      instanceId: string,
      path: string,
      iteration: number
    ) => Effect.Effect<FileContent, FileCallError>
    /** How the platform is, found out within 2 s; nothing where there is none. */
    readonly probe: Effect.Effect<Option.Option<Health>>
  }
>() {}

/** Where the platform is, and as whom it is called. */
export interface Settings {
  /** Base address without a slash at its end; without one there is no platform. */
  readonly url: Option.Option<string>
  readonly apiKey: Option.Option<Redacted.Redacted>
}

/** The settings as configuration variables. */
export const config: Config.Config<Settings> = Config.all({
  url: BaseUrl.optional("AGENT_PLATFORM_URL", {
    description: "Base address of the agent platform; sessions cannot be activated without it",
    shown: "none"
  }),
  apiKey: Setting.optionalCredential("AGENT_PLATFORM_API_KEY", {
    description: "Bearer credential for the agent platform",
    shown: "none"
  }).pipe(Config.map(Option.filter(key => Redacted.value(key) !== "")))
})
