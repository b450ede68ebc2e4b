/**
 * Bringing a session's instance up, and giving it back. One errand at a time for each session.
 */
import { Cause, Duration, Effect, Exit, Scope } from "effect"
import type { StoreBusy, StoreUnavailable } from "../../Kv/Store.ts"
import { type ActivationError, ActivationTimeout, SessionNotActive, SessionNotFound } from "../Sessions.ts"
import type { Entity } from "./Entity.ts"
import * as Errand from "./Errand.ts"
import * as Ids from "./Ids.ts"
import { makeWay, pause, payInTime, payNow } from "./InstanceCleanup.ts"
import * as Creation from "./InstanceCreation.ts"
import * as Link from "./InstanceLink.ts"
import * as Loading from "./SessionCache.ts"
import * as State from "./SessionState.ts"

/** How long a session's end waits for its instances to be gone, */
const patience = Duration.seconds(15)

/** and how long another activation does. */
const impatience = Duration.seconds(5)

const closeLink = (entity: Entity): Effect.Effect<void> =>
  Effect.suspend(() => {
    const { link } = entity
    entity.link = undefined
    return link === undefined ? Effect.void : link.close
  })

const connect = (entity: Entity, instanceId: string) =>
  Link.open({
    session: entity.key,
    instanceId,
    journal: entity.journal,
    platform: entity.shared.platform,
    onEnd: Effect.suspend(() => {
      const { link } = entity
      if (link?.instanceId !== instanceId) return Effect.void
      entity.link = undefined
      // The link cannot wait for its own end.
      return Effect.zipRight(Effect.forkIn(link.close, entity.shared.scope), tidy(entity))
    })
  }).pipe(Effect.provideService(Scope.Scope, entity.shared.scope))

/** Creates and connects, with the key stored before it is used and the id before it is relied on. */
const bringUp = (entity: Entity, key: string, purpose: Creation.Purpose) =>
  Effect.gen(function* () {
    const { journal } = entity
    const instanceId = yield* Creation.join(entity, key, purpose)
    yield* journal.update(state => State.silently(State.setInstanceId(state, key, instanceId)))
    entity.giveUpAt = Number.NEGATIVE_INFINITY
    const link = yield* connect(entity, instanceId)
    entity.link = link
    yield* journal.update(state => State.transition(state, "activated"))
    yield* link.listen
  })

const messageOf = (cause: Cause.Cause<ActivationError>): string => {
  const error = Cause.squash(cause)
  return error instanceof Error && error.message !== "" ? error.message : "the activation failed"
}

const activate = (entity: Entity): Effect.Effect<void, ActivationError> =>
  Effect.gen(function* () {
    const { journal, shared } = entity
    const { activationTimeout } = shared.settings
    yield* closeLink(entity)
    // A creation of which nobody knows the end may still lead to the instance, if it is this one that is wanted.
    yield* journal.update(state =>
      State.silently(Creation.isReusable(entity, state.instance) ? state : State.releaseInstance(state))
    )
    yield* makeWay(entity, impatience)
    const fresh = yield* Ids.unique
    // What still goes on at the platform after we have given up is left a moment before it is undone.
    entity.giveUpAt = shared.monotonic() + Duration.toMillis(activationTimeout) + pause(1)
    const { state } = yield* journal.update(state => {
      const lost = State.endTurns(state, State.errored("instance_lost", "The instance was lost"))
      return State.andThen(lost, state =>
        State.transition(
          Creation.isReusable(entity, state.instance)
            ? state
            : { ...State.releaseInstance(state), instance: { key: fresh, instanceId: null } },
          "activate"
        )
      )
    })
    const key = state.instance?.key ?? fresh
    yield* Effect.timeoutFail(bringUp(entity, key, key === fresh ? "first" : "again"), {
      duration: activationTimeout,
      onTimeout: () =>
        new ActivationTimeout({
          message: `The agent platform did not bring an instance up within ${Duration.format(activationTimeout)}`
        })
    })
  }).pipe(
    Effect.withSpan("Sessions.activate", { attributes: { session: entity.key } }),
    Effect.onExit(exit =>
      Exit.isSuccess(exit)
        ? Effect.void
        : Effect.zipRight(
            closeLink(entity),
            // What was given up goes on to where whoever gave it up takes it.
            Exit.isInterrupted(exit)
              ? Effect.void
              : Effect.ignore(entity.journal.update(state => State.transition(state, "failed", messageOf(exit.cause))))
          )
    )
  )

/** Ends what a session has; `isAwaited` says that its instance is to be gone as well by then, if it goes in time. */
const deactivate = (
  entity: Entity,
  reason: string,
  isAwaited: boolean
): Effect.Effect<void, StoreBusy | StoreUnavailable> =>
  Effect.gen(function* () {
    const { journal } = entity
    yield* journal.update(state =>
      State.andThen(State.endTurns(State.releaseInstance(state), State.interrupted(reason)), state =>
        State.transition(state, "deactivate", reason)
      )
    )
    yield* closeLink(entity)
    yield* isAwaited ? payNow(entity, patience) : payInTime(entity)
    yield* journal.update(state => State.transition(state, "deactivated"))
  }).pipe(Effect.withSpan("Sessions.deactivate", { attributes: { session: entity.key, reason } }))

const begin = (entity: Entity, kind: Errand.Errand["kind"], work: Effect.Effect<void, ActivationError>) =>
  Effect.suspend(() =>
    Effect.tap(
      Errand.start(kind, entity.shared.scope, work, () => {
        entity.errand = undefined
        entity.touch()
      }),
      errand => {
        entity.errand = errand
      }
    )
  )

/** Activates once it is the tenant's turn. */
const activateInTurn = (entity: Entity): Effect.Effect<void, ActivationError> => {
  const { activations, settings } = entity.shared
  return activations.use(entity.record.tenant, 1, () => activate(entity), settings.activationTimeout)
}

/** Begins an activation; one that fails is tidied up behind, whoever is still there. */
const beginActivation = (entity: Entity) =>
  Effect.tap(begin(entity, "activation", activateInTurn(entity)), ({ done }) =>
    Effect.forkIn(
      Effect.catchAll(done, error => (error._tag === "SessionNotActive" ? Effect.void : tidy(entity))),
      entity.shared.scope
    )
  )

/** The link to a session's instance, brought up where there is none. Whoever comes meanwhile shares the errand. */
export const ensureActive = (entity: Entity): Effect.Effect<Link.InstanceLink, ActivationError> =>
  Effect.suspend((): Effect.Effect<Link.InstanceLink, ActivationError> => {
    const { errand, link, shared } = entity
    if (entity.isDeleted || entity.isGoing) {
      return Effect.fail(new SessionNotFound({ sessionId: entity.record.id }))
    }
    if (shared.isClosing())
      return Effect.fail(new SessionNotActive({ message: "The gateway is shutting down", mayPass: true }))
    if (errand?.kind === "deactivation") return Effect.zipRight(errand.over, ensureActive(entity))
    if (link !== undefined && entity.isRunning) return Effect.succeed(link)
    // An agent that lacks what it was meant to have fails in ways that nobody could make sense of.
    const { loss } = entity
    if (loss !== undefined) return Effect.fail(loss)
    const activation = errand === undefined ? beginActivation(entity) : Effect.succeed(errand)
    return Effect.zipRight(
      Effect.flatMap(activation, ({ done }) => done),
      Effect.suspend(() =>
        entity.link !== undefined && entity.isRunning
          ? Effect.succeed(entity.link)
          : Effect.fail(new SessionNotActive({ message: "The instance ended right after its start", mayPass: true }))
      )
    )
  })

/** Stops a session, giving up an activation that is under way; `isAwaited` as above. */
export const stop = (
  entity: Entity,
  reason: string,
  isAwaited = true
): Effect.Effect<void, StoreBusy | StoreUnavailable> =>
  Effect.suspend((): Effect.Effect<void, StoreBusy | StoreUnavailable> => {
    const { errand } = entity
    if (errand?.kind === "activation") return Effect.zipRight(errand.cancel, stop(entity, reason, isAwaited))
    const { lifecycle: state, instance } = entity.journal.state()
    if (errand !== undefined) {
      return state === "deactivating"
        ? storeErrorOf(errand.done)
        : Effect.zipRight(errand.over, stop(entity, reason, isAwaited))
    }
    if (state === "inactive" && instance === null) return Effect.void
    return Effect.flatMap(begin(entity, "deactivation", deactivate(entity, reason, isAwaited)), ({ done }) =>
      storeErrorOf(done)
    )
  })

/** Of what an errand may fail with, only the store concerns a deactivation. */
const storeErrorOf = (done: Errand.Errand["done"]): Effect.Effect<void, StoreBusy | StoreUnavailable> =>
  Effect.catchAll(done, error =>
    error._tag === "StoreBusy" || error._tag === "StoreUnavailable" ? Effect.fail(error) : Effect.void
  )

/** Ends what was left half-done, and gives back what a session that does not run still has. */
export const tidy = (entity: Entity): Effect.Effect<void> =>
  Effect.suspend(() => {
    const { errand, journal, shared } = entity
    const { instance, lifecycle: state } = journal.state()
    if (shared.isClosing()) return Effect.void
    if (journal.isLost()) return Effect.asVoid(renew(entity))
    const isLeft = errand === undefined && shared.monotonic() >= entity.giveUpAt
    if (isLeft && (state === "activating" || state === "deactivating")) {
      return Effect.asVoid(begin(entity, "deactivation", deactivate(entity, "left unfinished", false)))
    }
    if (!isLeft || instance === null || entity.isRunning) return payInTime(entity)
    const owe = journal.update(state =>
      // Somebody may be about to bring it up by now.
      State.silently(
        state.lifecycle === "inactive" || state.lifecycle === "error" ? State.releaseInstance(state) : state
      )
    )
    return Effect.zipRight(Effect.ignore(owe), payInTime(entity))
  })

/**
 * Gives a session whose history was lost another one, with all that it owes. Who followed the old one is told that
 * nothing more comes of it.
 */
const renew = (entity: Entity): Effect.Effect<void> =>
  Effect.suspend(() => {
    const { errand, subscribers } = entity
    if (errand?.kind === "activation") return Effect.zipRight(errand.cancel, renew(entity))
    if (errand !== undefined) return Effect.void
    const work = Effect.gen(function* () {
      yield* closeLink(entity)
      const { epoch, journal } = yield* Loading.anotherJournal(entity)
      const followers = [...subscribers]
      subscribers.clear()
      entity.journal = journal
      entity.record = { ...entity.record, epoch }
      if (!entity.isDeleted) entity.shared.save(entity)
      for (const subscriber of followers) subscriber.onLost()
      yield* journal.update(State.recover)
      yield* payInTime(entity)
    })
    return Effect.zipRight(
      Effect.logWarning("The history of a session is not there any more; the session begins another one").pipe(
        Effect.annotateLogs({ session: entity.key })
      ),
      Effect.asVoid(begin(entity, "deactivation", work))
    )
  })
