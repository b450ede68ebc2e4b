/**
 * Bringing a session's instance up, and giving it back. One errand at a time for each session.
 */
import { Cause, Duration, Effect, Exit, Scope } from "effect"
import type { StoreBusy, StoreUnavailable } from "../../Kv/Store.ts"
import { AgentPlatformConnectionError } from "../../Upstream/AgentPlatform.ts"
import type { TurnEnd } from "../Protocol/Event.ts"
import * as Session from "../Session.ts"
import { type ActivationError, ActivationTimeout, SessionNotActive, SessionNotFound } from "../Sessions.ts"
import type { Entity } from "./Entity.ts"
import * as Errand from "./Errand.ts"
import * as Ids from "./Ids.ts"
import * as Link from "./Link.ts"

/** How long giving one instance back may take. */
const giveBackLimit = Duration.seconds(15)

/** Waits between two attempts to give an instance back: 5 s, doubling to 5 minutes. */
const giveBackPause = (tries: number): number => Math.min(5000 * 2 ** Math.max(0, tries - 1), 300_000)

/** Whether a failed creation has certainly made no instance. */
const madeNothing = ({ reason, statusCode }: AgentPlatformConnectionError): boolean =>
  reason === "not_configured" ||
  reason === "circuit_open" ||
  (reason === "status" && statusCode !== undefined && statusCode >= 400 && statusCode < 500)

const creation = (entity: Entity, key: string) => {
  const { agentType, deployment, environment } = entity.record
  return { agentType, deployment, environment, secrets: entity.secrets, idempotencyKey: key }
}

const isSame = (a: Session.Lease | null, b: Session.Lease): boolean => a?.key === b.key && a.instanceId === b.instanceId

const closeLink = (entity: Entity): Effect.Effect<void> =>
  Effect.suspend(() => {
    const { link } = entity
    entity.link = undefined
    return link === undefined ? Effect.void : link.close
  })

/** Stops whatever lives at the platform on the session's account. */
const giveBack = (entity: Entity): Effect.Effect<void, AgentPlatformConnectionError> =>
  Effect.gen(function* () {
    const { journal, shared } = entity
    const { lease } = journal.standing()
    if (lease === null) return
    const failed = (error: AgentPlatformConnectionError) => {
      entity.giveBackTries++
      entity.giveBackAt = shared.now() + giveBackPause(entity.giveBackTries)
      return Effect.logWarning("An instance could not be given back; it will be tried again").pipe(
        Effect.annotateLogs({ session: entity.key, reason: error.message })
      )
    }
    // An instance whose id never came is asked for once more by the key of its creation, to learn the id.
    const instanceId =
      lease.instanceId === null ? shared.platform.create(creation(entity, lease.key)) : Effect.succeed(lease.instanceId)
    yield* Effect.flatMap(instanceId, shared.platform.stop).pipe(
      Effect.timeoutFail({
        duration: giveBackLimit,
        onTimeout: () =>
          new AgentPlatformConnectionError({
            operation: "stop",
            reason: "timeout",
            message: `The instance did not stop within ${Duration.format(giveBackLimit)}`
          })
      }),
      Effect.tapError(failed)
    )
    entity.giveBackTries = 0
    yield* Effect.ignore(
      journal.update(standing =>
        Session.stay({ ...standing, lease: isSame(standing.lease, lease) ? null : standing.lease })
      )
    )
  })

/** Sends the messages again that a lost connection may have swallowed; the platform knows a turn by its id. */
const resend = (entity: Entity, send: Link.Link["send"]): Effect.Effect<void> =>
  Effect.forEach(
    [...entity.messages],
    ([turnId, content]) => Effect.ignore(send({ type: "message", turnId, content })),
    { discard: true }
  )

const connect = (entity: Entity, instanceId: string) =>
  Link.open({
    instanceId,
    journal: entity.journal,
    platform: entity.shared.platform,
    onRestored: send => resend(entity, send),
    onEnd: Effect.suspend(() => {
      const { link } = entity
      if (link?.instanceId !== instanceId) return Effect.void
      entity.link = undefined
      // The link cannot wait for its own end.
      return Effect.zipRight(Effect.forkIn(link.close, entity.shared.scope), tidy(entity))
    })
  }).pipe(Effect.provideService(Scope.Scope, entity.shared.scope))

/** Creates and connects, with the key stored before it is used and the id before it is relied on. */
const bringUp = (entity: Entity, key: string) =>
  Effect.gen(function* () {
    const { journal, shared } = entity
    const instanceId = yield* Effect.tapError(shared.platform.create(creation(entity, key)), error =>
      madeNothing(error)
        ? Effect.ignore(journal.update(standing => Session.stay({ ...standing, lease: null })))
        : Effect.void
    )
    yield* journal.update(standing => Session.stay({ ...standing, lease: { key, instanceId } }))
    entity.giveBackAt = 0
    const link = yield* connect(entity, instanceId)
    entity.link = link
    yield* journal.update(standing => Session.move(standing, "activated"))
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
    const left = journal.standing().lease
    if (left !== null && left.instanceId !== null) yield* giveBack(entity)
    // The key of a creation whose end nobody knows leads to its instance, where it has made one.
    const key = left !== null && left.instanceId === null ? left.key : yield* Ids.unique
    // What still goes on at the platform after we have given up is left a moment before it is undone.
    entity.giveBackAt = shared.now() + Duration.toMillis(activationTimeout) + giveBackPause(1)
    yield* journal.update(standing =>
      Session.andThen(Session.endTurns(standing, Session.errored("instance_lost", "The instance was lost")), standing =>
        Session.move({ ...standing, lease: { key, instanceId: null } }, "activate")
      )
    )
    const lost = entity.record.secretNames.filter(name => !Object.hasOwn(entity.secrets, name))
    if (lost.length > 0) {
      yield* Effect.logWarning("A session is brought up without its secrets, which were lost in a restart").pipe(
        Effect.annotateLogs({ session: entity.key, names: lost.join(", ") })
      )
    }
    yield* Effect.timeoutFail(bringUp(entity, key), {
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
              : Effect.ignore(
                  entity.journal.update(standing => Session.move(standing, "failed", messageOf(exit.cause)))
                )
          )
    )
  )

const deactivate = (
  entity: Entity,
  reason: string,
  endOf: (turnId: string) => TurnEnd
): Effect.Effect<void, StoreBusy | StoreUnavailable> =>
  Effect.gen(function* () {
    const { journal } = entity
    yield* journal.update(standing =>
      Session.andThen(Session.endTurns(standing, endOf), standing => Session.move(standing, "deactivate", reason))
    )
    yield* closeLink(entity)
    yield* Effect.ignore(giveBack(entity))
    yield* journal.update(standing => Session.move(standing, "deactivated"))
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

/** Begins an activation; one that fails is tidied up behind, whoever is still there. */
const beginActivation = (entity: Entity) =>
  Effect.tap(begin(entity, "activation", activate(entity)), ({ done }) =>
    Effect.forkIn(
      Effect.catchAll(done, error => (error._tag === "SessionNotActive" ? Effect.void : tidy(entity))),
      entity.shared.scope
    )
  )

/** The link to a session's instance, brought up where there is none. Whoever comes meanwhile shares the errand. */
export const ensureActive = (entity: Entity): Effect.Effect<Link.Link, ActivationError> =>
  Effect.suspend((): Effect.Effect<Link.Link, ActivationError> => {
    const { errand, link, shared } = entity
    if (entity.isDeleted || entity.isGoing) {
      return Effect.fail(new SessionNotFound({ sessionId: entity.record.id }))
    }
    if (shared.isClosing()) return Effect.fail(new SessionNotActive({ message: "The gateway is shutting down" }))
    if (errand?.kind === "deactivation") return Effect.zipRight(errand.over, ensureActive(entity))
    if (link !== undefined && entity.isRunning) return Effect.succeed(link)
    const activation = errand === undefined ? beginActivation(entity) : Effect.succeed(errand)
    return Effect.zipRight(
      Effect.flatMap(activation, ({ done }) => done),
      Effect.suspend(() =>
        entity.link !== undefined && entity.isRunning
          ? Effect.succeed(entity.link)
          : Effect.fail(new SessionNotActive({ message: "The instance ended right after its start" }))
      )
    )
  })

/** Stops a session, giving up an activation that is under way. */
export const stop = (
  entity: Entity,
  reason: string,
  endOf: (turnId: string) => TurnEnd = Session.interrupted(reason)
): Effect.Effect<void, StoreBusy | StoreUnavailable> =>
  Effect.suspend((): Effect.Effect<void, StoreBusy | StoreUnavailable> => {
    const { errand } = entity
    if (errand?.kind === "activation") return Effect.zipRight(errand.cancel, stop(entity, reason, endOf))
    const { state, lease } = entity.journal.standing()
    if (errand !== undefined) {
      return state === "deactivating"
        ? storeErrorOf(errand.done)
        : Effect.zipRight(errand.over, stop(entity, reason, endOf))
    }
    if (state === "inactive" && lease === null) return Effect.void
    return Effect.flatMap(begin(entity, "deactivation", deactivate(entity, reason, endOf)), ({ done }) =>
      storeErrorOf(done)
    )
  })

/** Of what an errand may fail with, only the store concerns a deactivation. */
const storeErrorOf = (done: Errand.Errand["done"]): Effect.Effect<void, StoreBusy | StoreUnavailable> =>
  Effect.catchAll(done, error =>
    error._tag === "StoreBusy" || error._tag === "StoreUnavailable" ? Effect.fail(error) : Effect.void
  )

/** Gives back what a session that does not run still has, and ends what was left half-done. */
export const tidy = (entity: Entity): Effect.Effect<void> =>
  Effect.suspend(() => {
    const { errand, shared } = entity
    const { lease, state } = entity.journal.standing()
    if (errand !== undefined || shared.isClosing()) return Effect.void
    if ((state === "activating" || state === "deactivating") && shared.now() >= entity.giveBackAt) {
      return Effect.asVoid(
        begin(entity, "deactivation", deactivate(entity, "left unfinished", Session.interrupted("the session stopped")))
      )
    }
    if (lease === null || entity.isRunning || shared.now() < entity.giveBackAt) return Effect.void
    return Effect.asVoid(begin(entity, "deactivation", Effect.ignore(giveBack(entity))))
  })
