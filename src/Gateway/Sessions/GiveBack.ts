/**
 * Giving instances back to the platform, so that none is left behind there.
 */
import { Duration, Effect } from "effect"
import { AgentPlatformConnectionError } from "../../Upstream/AgentPlatform.ts"
import * as Session from "../Session.ts"
import * as Creation from "./Creation.ts"
import type { Entity } from "./Entity.ts"

/** How long giving one instance back may take, */
const patience = Duration.seconds(15)

/** and how long where somebody waits for the next one. */
const impatience = Duration.seconds(5)

/** Instances of earlier leases that one session may owe; until one of them is taken back there is no further one. */
const mostDebts = 8

/** Waits between two attempts to give an instance back: 5 s, doubling to 5 minutes, in milliseconds. */
export const pause = (tries: number): number => Math.min(5000 * 2 ** Math.max(0, tries - 1), 300_000)

const stop = (
  { key, shared }: Entity,
  instanceId: Effect.Effect<string, AgentPlatformConnectionError>,
  limit: Duration.Duration
): Effect.Effect<void, AgentPlatformConnectionError> =>
  Effect.flatMap(instanceId, shared.platform.stop).pipe(
    Effect.timeoutFail({
      duration: limit,
      onTimeout: () =>
        new AgentPlatformConnectionError({
          operation: "stop",
          reason: "timeout",
          message: `The instance did not stop within ${Duration.format(limit)}`
        })
    }),
    Effect.tapError(error =>
      Effect.logWarning("An instance could not be given back; it will be tried again").pipe(
        Effect.annotateLogs({ session: key, reason: error.message })
      )
    )
  )

/** Stops what lives at the platform by the session's lease. */
export const giveBack = (entity: Entity, limit = patience): Effect.Effect<void, AgentPlatformConnectionError> =>
  Effect.gen(function* () {
    const { journal, shared } = entity
    const { lease } = journal.standing()
    if (lease === null) return
    // Its id is what its creation is answered. Where no answer ever came, the same key asks for it once more.
    const instanceId =
      lease.instanceId === null ? Creation.join(entity, lease.key, false) : Effect.succeed(lease.instanceId)
    yield* Effect.catchAll(stop(entity, instanceId, limit), error => {
      // The creation may have ended with the certainty that there is nothing.
      if (journal.standing().lease === null) return Effect.void
      entity.giveBackTries++
      entity.giveBackAt = shared.now() + pause(entity.giveBackTries)
      return Effect.fail(error)
    })
    entity.giveBackTries = 0
    entity.creation = undefined
    yield* Effect.ignore(
      journal.update(standing =>
        Session.stay({ ...standing, lease: standing.lease?.key === lease.key ? null : standing.lease })
      )
    )
  })

/** Makes way for another instance: an earlier one that the platform does not take back now is remembered. */
export const makeWay = (entity: Entity, instanceId: string) =>
  Effect.gen(function* () {
    const { journal, shared } = entity
    // What has just failed would fail again, and count against the platform once more.
    const isPointless = entity.giveBackTries > 0 && shared.now() < entity.giveBackAt
    if (!isPointless) yield* Effect.ignore(giveBack(entity, impatience))
    const { debts, lease } = journal.standing()
    if (lease === null) return
    if (debts.length >= mostDebts) {
      return yield* new AgentPlatformConnectionError({
        operation: "stop",
        reason: "connection",
        message: `${debts.length} earlier instances of the session could not be stopped yet`
      })
    }
    yield* journal.update(standing => Session.stay(Session.owe(standing, instanceId)))
    entity.debtTries = entity.giveBackTries
    entity.debtsAt = entity.giveBackAt
    entity.giveBackTries = 0
    entity.creation = undefined
  })

/** Gives the instances of earlier leases back, as far as the platform takes them. */
export const payDebts = (entity: Entity): Effect.Effect<void> =>
  Effect.suspend(() => {
    const { journal, shared } = entity
    const { debts } = journal.standing()
    if (debts.length === 0 || entity.isPaying) return Effect.void
    entity.isPaying = true
    const pay = (instanceId: string) =>
      stop(entity, Effect.succeed(instanceId), patience).pipe(
        Effect.zipRight(journal.update(standing => Session.stay(Session.acquit(standing, instanceId)))),
        Effect.isSuccess
      )
    return Effect.forEach(debts, pay).pipe(
      Effect.flatMap(paid =>
        Effect.sync(() => {
          entity.debtTries = paid.includes(false) ? entity.debtTries + 1 : 0
          entity.debtsAt = shared.now() + (paid.includes(false) ? pause(entity.debtTries) : 0)
        })
      ),
      Effect.ensuring(
        Effect.sync(() => {
          entity.isPaying = false
        })
      )
    )
  })

/** As {@link payDebts}, aside and once the time for it has come. */
export const payDebtsInTime = (entity: Entity): Effect.Effect<void> =>
  Effect.suspend(() =>
    entity.journal.standing().debts.length === 0 || entity.shared.now() < entity.debtsAt
      ? Effect.void
      : Effect.asVoid(Effect.forkIn(Effect.interruptible(payDebts(entity)), entity.shared.scope))
  )
