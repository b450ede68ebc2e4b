import { Deferred, Effect, Exit, FiberId } from "effect"
import type { AgentPlatformConnectionError } from "../../Upstream/AgentPlatform.ts"
import * as Session from "../Session.ts"
import type { Entity } from "./Entity.ts"

/**
 * A request for an instance, which goes on to its end whoever leaves: it may have made an instance by then, and its
 * answer is the one sure way to learn which. It ends within the time that the platform's client gives it.
 */
export interface Creation {
  readonly key: string
  readonly outcome: Effect.Effect<string, AgentPlatformConnectionError>
}

/** Whether a failed creation has certainly made no instance. */
const madeNothing = ({ isDoubtful, reason, statusCode }: AgentPlatformConnectionError): boolean =>
  isDoubtful !== true &&
  (reason === "not_configured" ||
    reason === "circuit_open" ||
    (reason === "status" && statusCode !== undefined && statusCode >= 400 && statusCode < 500))

const isUnanswered = (lease: Session.Lease | null, key: string): boolean =>
  lease !== null && lease.key === key && lease.instanceId === null

/** Notes what is known of the lease; where the store is away, the creation itself still knows it. */
const settle = (entity: Entity, key: string, lease: Session.Lease | null): Effect.Effect<void> =>
  Effect.ignore(
    entity.journal.update(standing =>
      Session.stay(isUnanswered(standing.lease, key) ? { ...standing, lease } : standing)
    )
  )

/**
 * Creates the instance of a key, or joins whoever does. Once it has succeeded it is not asked for again.
 *
 * `isFirst` says that nobody has used the key before: only then does a refusal mean that there is no instance.
 */
export const join = (
  entity: Entity,
  key: string,
  isFirst: boolean
): Effect.Effect<string, AgentPlatformConnectionError> =>
  Effect.suspend(() => {
    const { record, secrets, shared } = entity
    if (entity.creation?.key === key) return entity.creation.outcome
    const done = Deferred.unsafeMake<string, AgentPlatformConnectionError>(FiberId.none)
    const creation: Creation = { key, outcome: Deferred.await(done) }
    const { agentType, deployment, environment } = record
    const end = (exit: Exit.Exit<string, AgentPlatformConnectionError>) =>
      Effect.gen(function* () {
        if (Exit.isSuccess(exit)) yield* settle(entity, key, { key, instanceId: exit.value })
        else {
          if (entity.creation === creation) entity.creation = undefined
          const isSettled = isFirst && exit.cause._tag === "Fail" && madeNothing(exit.cause.error)
          if (isSettled) yield* settle(entity, key, null)
        }
        yield* Deferred.done(done, exit)
      })
    entity.creation = creation
    return shared.platform
      .create({ agentType, deployment, environment, secrets, idempotencyKey: key })
      .pipe(
        Effect.interruptible,
        Effect.exit,
        Effect.flatMap(end),
        Effect.uninterruptible,
        Effect.forkIn(shared.scope),
        Effect.zipRight(creation.outcome)
      )
  })
