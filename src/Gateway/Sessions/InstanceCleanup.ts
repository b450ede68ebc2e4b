/**
 * Giving instances back to the platform, so that none is left behind there.
 */
import { type Duration, Effect, Exit } from "effect"
import * as Supervision from "../../Supervision.ts"
import { AgentPlatformConnectionError } from "../../Upstream/AgentPlatform.ts"
import type { Entity } from "./Entity.ts"
import * as Creation from "./InstanceCreation.ts"
import * as State from "./SessionState.ts"

/** Earlier leases that one session may owe; until one of them is taken back there is no further one. */
const mostDebts = 8

/** Refusals after which a debt is given up: more than half an hour of them. */
const mostRefusals = 12

/** Refusals that say nothing about what was asked: they may end with a change of credentials, or by themselves. */
const passing: ReadonlySet<number> = new Set([401, 403, 408, 429])

/** Waits between two attempts to give an instance back: 5 s, doubling to 5 minutes, in milliseconds. */
export const pause = (tries: number): number => Math.min(5000 * 2 ** Math.max(0, tries - 1), 300_000)

const isRefusal = ({ reason, statusCode = 0 }: AgentPlatformConnectionError): boolean =>
  reason === "status" && statusCode >= 400 && statusCode < 500 && !passing.has(statusCode)

/** The instance of a debt: what its creation is answered. Where no answer ever came, the same key asks once more. */
const instanceOf = (entity: Entity, { key, instanceId }: State.PendingStop, isAside: boolean) => {
  if (instanceId !== null) return Effect.succeed(instanceId)
  const ask = Creation.join(entity, key, "return")
  return isAside && !entity.creations.has(key) ? entity.shared.aside.use(entity.record.tenant, 1, () => ask) : ask
}

/** What becomes of a debt that could not be paid. */
const postpone = (
  entity: Entity,
  { key, instanceId, refusals }: State.PendingStop,
  error: AgentPlatformConnectionError
) => {
  const { journal } = entity
  const refuse = Effect.ignore(journal.update(state => State.silently(State.countRefusal(state, key))))
  const note = { session: entity.key, reason: error.message }
  if (!isRefusal(error)) {
    return Effect.annotateLogs(Effect.logWarning("An instance could not be given back; it will be tried again"), note)
  }
  if (refusals + 1 < mostRefusals) return refuse
  return Effect.zipRight(
    Effect.logError(
      "The platform refuses to say or do anything about an instance, which may be left behind there"
    ).pipe(Effect.annotateLogs({ ...note, instance: instanceId ?? "unknown", idempotencyKey: key })),
    Effect.ignore(journal.update(state => State.silently(State.removeInstance(state, key))))
  )
}

/** Pays one debt, and tells whether it is paid. */
const pay = (entity: Entity, debt: State.PendingStop, isAside: boolean): Effect.Effect<boolean> => {
  const { journal, shared } = entity
  const isOwed = () => journal.state().pendingStops.some(({ key }) => key === debt.key)
  const stop = (instanceId: string) => {
    const request = shared.platform.stop(instanceId, { isAside })
    return isAside ? shared.aside.use(entity.record.tenant, 1, () => request) : request
  }
  return Effect.flatMap(instanceOf(entity, debt, isAside), stop).pipe(
    Effect.zipRight(journal.update(state => State.silently(State.removeInstance(state, debt.key)))),
    Effect.zipRight(
      Effect.sync(() => {
        entity.creations.delete(debt.key)
        return true
      })
    ),
    Effect.catchAll(error =>
      // The creation may have ended with the certainty that there is nothing.
      !isOwed()
        ? Effect.succeed(true)
        : Effect.as(error instanceof AgentPlatformConnectionError ? postpone(entity, debt, error) : Effect.void, false)
    )
  )
}

/** One attempt at all that a session owes. Two of them at once do no harm: what is gone counts as stopped. */
const attempt = (entity: Entity, isAside: boolean) =>
  Effect.acquireUseRelease(
    Effect.sync(() => {
      entity.payers++
      return entity.journal.state().pendingStops
    }),
    pendingStops =>
      Effect.forEach(pendingStops, debt => pay(entity, debt, isAside), { concurrency: isAside ? 1 : "unbounded" }),
    (_, exit) =>
      Effect.sync(() => {
        const isDone = Exit.isSuccess(exit) && !exit.value.includes(false)
        entity.payers--
        entity.debtTries = isDone ? 0 : entity.debtTries + 1
        entity.debtsAt = isDone ? Number.NEGATIVE_INFINITY : entity.shared.monotonic() + pause(entity.debtTries)
      })
  )

/** Gives back what a session owes, as far as the platform takes it within a time. */
export const payNow = (entity: Entity, limit: Duration.DurationInput): Effect.Effect<void> =>
  Effect.suspend(() =>
    entity.journal.state().pendingStops.length === 0
      ? Effect.void
      : // What cannot be interrupted at once, as a write to a store that hangs, is not waited for.
        Effect.asVoid(Supervision.within(limit, attempt(entity, false)))
  )

/** Puts the next attempt off, as after one that has failed: the platform is known to be away. */
export const postponePayment = (entity: Entity): void => {
  entity.debtTries++
  entity.debtsAt = entity.shared.monotonic() + pause(entity.debtTries)
}

/** Begins to give back what a session owes, once the time for it has come: aside, and in turn with other sessions. */
export const payInTime = (entity: Entity): Effect.Effect<void> =>
  Effect.suspend(() => {
    const { debtsAt, journal, payers, shared } = entity
    if (journal.state().pendingStops.length === 0 || payers > 0 || shared.monotonic() < debtsAt) return Effect.void
    return Effect.asVoid(Effect.forkIn(Effect.interruptible(attempt(entity, true)), shared.scope))
  })

/** Makes way for another instance: waits for earlier ones to go, unless that has just failed. */
export const makeWay = (entity: Entity, limit: Duration.DurationInput) =>
  Effect.gen(function* () {
    if (entity.shared.monotonic() >= entity.debtsAt) yield* payNow(entity, limit)
    const { pendingStops } = entity.journal.state()
    if (pendingStops.length < mostDebts) return
    return yield* new AgentPlatformConnectionError({
      operation: "stop",
      reason: "connection",
      message: `${pendingStops.length} earlier instances of the session could not be stopped yet`
    })
  })
