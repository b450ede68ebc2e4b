/**
 * Creates instances at the platform. Each has an idempotency key, so that a repeated request returns the same instance.
 */
import { Deferred, Effect, Exit, FiberId } from "effect"
import type { StoreUnavailable } from "../../../Kv/Store.ts"
import type { AgentPlatformConnectionError } from "../../../Upstream/AgentPlatform.ts"
import type { SessionConflict } from "../../Sessions.ts"
import { isSame, type Secrets } from "../Session/SecretPool.ts"
import type { SessionCore } from "../Session/SessionCore.ts"
import * as State from "../Session/SessionState.ts"
import type { LaunchConfiguration } from "./LaunchConfiguration.ts"

/** Why an instance cannot be created: the platform, or a launch configuration that was lost or cannot be read. */
export type CreationError = AgentPlatformConnectionError | SessionConflict | StoreUnavailable

/** The purpose of a request with a key: the first request, a repetition, or to get the id of an instance to stop. */
export type Purpose = "first" | "again" | "cleanup"

type Creation = Effect.Effect<string, CreationError>

/** Whether a failed creation is known to have made no instance. */
const madeNothing = (error: CreationError): boolean => {
  if (error._tag !== "AgentPlatformConnectionError") return true
  const { isInDoubt, reason, statusCode } = error
  return (
    isInDoubt !== true &&
    (reason === "not_configured" ||
      reason === "circuit_open" ||
      (reason === "status" && statusCode !== undefined && statusCode >= 400 && statusCode < 500))
  )
}

/** The creations of one session. */
export class InstanceCreation {
  /** Creations in progress, and those whose outcome is not stored yet, by key. */
  private readonly creations = new Map<string, Creation>()
  /** The last key with which this process has requested an instance, and the parameters of that request. */
  private requested: { readonly key: string; readonly secrets: Secrets; readonly version: number } | undefined

  constructor(
    private readonly session: SessionCore,
    private readonly configuration: LaunchConfiguration
  ) {}

  /** Whether the key of an instance was requested with the current secrets and launch configuration. */
  isReusable(instance: State.Instance | null): instance is State.Instance {
    const { configuration, requested } = this
    return (
      instance !== null &&
      instance.instanceId === null &&
      requested?.key === instance.key &&
      requested.version === configuration.version &&
      isSame(requested.secrets, configuration.secrets)
    )
  }

  has(key: string): boolean {
    return this.creations.has(key)
  }

  forget(key: string): void {
    this.creations.delete(key)
  }

  /** Forgets the secrets of the last request. */
  loseSecrets(): void {
    this.requested = undefined
  }

  /**
   * Creates the instance of a key, or joins the creation in progress. Returns the instance's id.
   *
   * A creation is never interrupted: it may have made an instance, and only its answer has the id. It ends within the
   * timeout of the platform's client. A refusal means that there is no instance only if the key was never used before.
   */
  create(key: string, purpose: Purpose): Creation {
    return Effect.uninterruptibleMask(restore => {
      const known = this.creations.get(key)
      if (known !== undefined) return restore(known)
      const { configuration, requested, session } = this
      const { agentType, tenant } = session.record
      const done = Deferred.unsafeMake<string, CreationError>(FiberId.none)
      const creation: Creation = Deferred.await(done)
      const isBackground = purpose === "cleanup"
      const forget = Effect.sync(() => this.forget(key))
      // While the store is unavailable, the creation still knows its outcome.
      const recordOutcome = (f: (state: State.SessionState) => State.SessionState) =>
        Effect.ignore(Effect.zipRight(session.setState(f), forget))
      const end = (exit: Exit.Exit<string, CreationError>) =>
        Effect.gen(function* () {
          if (Exit.isSuccess(exit)) yield* recordOutcome(state => State.setInstanceId(state, key, exit.value))
          else {
            yield* forget
            const isNothing = purpose === "first" && exit.cause._tag === "Fail" && madeNothing(exit.cause.error)
            if (isNothing) yield* recordOutcome(state => State.removeInstance(state, key))
          }
          yield* Deferred.done(done, exit)
        })
      this.creations.set(key, creation)
      if (!isBackground) this.requested = { key, secrets: configuration.secrets, version: configuration.version }
      // A key is requested again with the same secrets while they are known.
      const secrets = isBackground && requested?.key !== key ? {} : (this.requested?.secrets ?? {})
      return Effect.flatMap(configuration.launch(isBackground), ({ deployment, environment }) =>
        session.shared.platform.create({
          ...{ agentType, tenant, deployment, environment, secrets, isBackground },
          idempotencyKey: key
        })
      ).pipe(
        Effect.interruptible,
        Effect.exit,
        Effect.flatMap(end),
        Effect.forkIn(session.shared.scope),
        Effect.zipRight(restore(creation))
      )
    })
  }
}
