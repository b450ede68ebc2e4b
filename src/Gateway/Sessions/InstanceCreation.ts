import { Deferred, Effect, Exit, FiberId } from "effect"
import type { StoreUnavailable } from "../../Kv/Store.ts"
import type { AgentPlatformConnectionError } from "../../Upstream/AgentPlatform.ts"
import type { SessionConflict } from "../Sessions.ts"
import type { Entity } from "./Entity.ts"
import { launchOf } from "./LaunchConfiguration.ts"
import { isSame } from "./Secrets.ts"
import * as State from "./SessionState.ts"

/**
 * A request for an instance, which goes on to its end whoever leaves: it may have made an instance by then, and its
 * answer is the one sure way to learn which. It ends within the time that the platform's client gives it.
 */
export type Creation = Effect.Effect<string, CreationError>

/** What keeps an instance from being made: the platform, or that the gateway does not know what to ask for. */
export type CreationError = AgentPlatformConnectionError | SessionConflict | StoreUnavailable

/** For what a key is used: for its first request, for another try of the same, or to learn what it has led to. */
export type Purpose = "first" | "again" | "return"

/** Whether a failed creation has certainly made no instance. */
const madeNothing = (error: CreationError): boolean => {
  if (error._tag !== "AgentPlatformConnectionError") return true
  const { isDoubtful, reason, statusCode } = error
  return (
    isDoubtful !== true &&
    (reason === "not_configured" ||
      reason === "circuit_open" ||
      (reason === "status" && statusCode !== undefined && statusCode >= 400 && statusCode < 500))
  )
}

/** Whether what a key leads to is what would be asked for now: the same secrets and launch configuration. */
export const isReusable = (entity: Entity, instance: State.Instance | null): instance is State.Instance => {
  const { edition, posted, secrets } = entity
  return (
    instance !== null &&
    instance.instanceId === null &&
    posted?.key === instance.key &&
    posted.edition === edition &&
    isSame(posted.secrets, secrets)
  )
}

/**
 * Creates the instance of a key, or joins whoever does.
 *
 * Only where nobody has used the key before does a refusal mean that there is no instance.
 */
export const join = (entity: Entity, key: string, purpose: Purpose): Creation =>
  Effect.uninterruptibleMask(restore => {
    const underway = entity.creations.get(key)
    if (underway !== undefined) return restore(underway)
    const { edition, journal, posted, record, secrets, shared } = entity
    const { agentType, tenant } = record
    const done = Deferred.unsafeMake<string, CreationError>(FiberId.none)
    const creation: Creation = Deferred.await(done)
    const isReturn = purpose === "return"
    const forget = Effect.sync(() => {
      entity.creations.delete(key)
    })
    // Where the store is away, the creation itself still knows what it has made.
    const settle = (f: (state: State.SessionState) => State.SessionState) =>
      Effect.ignore(
        Effect.zipRight(
          journal.update(state => State.silently(f(state))),
          forget
        )
      )
    const end = (exit: Exit.Exit<string, CreationError>) =>
      Effect.gen(function* () {
        if (Exit.isSuccess(exit)) yield* settle(state => State.setInstanceId(state, key, exit.value))
        else {
          yield* forget
          const isNothing = purpose === "first" && exit.cause._tag === "Fail" && madeNothing(exit.cause.error)
          if (isNothing) yield* settle(state => State.removeInstance(state, key))
        }
        yield* Deferred.done(done, exit)
      })
    entity.creations.set(key, creation)
    // What a key was first asked for with is asked for again, as long as it is known.
    if (!isReturn) entity.posted = { key, secrets, edition }
    const wanted = isReturn && posted?.key !== key ? {} : (entity.posted?.secrets ?? {})
    return Effect.flatMap(launchOf(entity, isReturn), ({ deployment, environment }) =>
      shared.platform.create({
        agentType,
        tenant,
        deployment,
        environment,
        secrets: wanted,
        idempotencyKey: key,
        isAside: isReturn
      })
    ).pipe(
      Effect.interruptible,
      Effect.exit,
      Effect.flatMap(end),
      Effect.forkIn(shared.scope),
      Effect.zipRight(restore(creation))
    )
  })
