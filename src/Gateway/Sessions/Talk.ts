/**
 * What clients say to a running instance.
 */
import { Effect, Option } from "effect"
import type { AgentPlatformConnectionError } from "../../Upstream/AgentPlatform.ts"
import * as Turns from "../EventMapping/Turns.ts"
import * as Session from "../Session.ts"
import { type ActivationError, SessionConflict, SessionNotActive, SessionsBusy } from "../Sessions.ts"
import type { Entity } from "./Entity.ts"
import * as Ids from "./Ids.ts"
import { ensureActive } from "./Lifecycle.ts"
import type { Link } from "./Link.ts"
import { openTurns } from "./Settings.ts"
import * as Title from "./Title.ts"

const notActive = () => new SessionNotActive({ message: "The session has no running instance" })

/** The link of a session that runs. */
const running = (entity: Entity): Effect.Effect<Link, SessionNotActive> =>
  Effect.suspend(() =>
    entity.link !== undefined && entity.isRunning ? Effect.succeed(entity.link) : Effect.fail(notActive())
  )

/** Takes a turn up, stored before the message is sent, so that it has its end whatever happens. */
const accept = (entity: Entity, turnId: string) =>
  Effect.suspend(() => {
    let refusal: SessionNotActive | SessionsBusy | undefined
    return Effect.flatMap(
      entity.journal.update(standing => {
        refusal = undefined
        if (!Session.isRunning(standing.state)) refusal = notActive()
        else if (standing.turns.open.size >= openTurns) {
          refusal = new SessionsBusy({
            message: `${standing.turns.open.size} turns are open; the limit is ${openTurns}`
          })
        }
        const turns = refusal === undefined ? Turns.accept(standing.turns, turnId) : Option.none()
        return Session.stay(Option.match(turns, { onNone: () => standing, onSome: turns => ({ ...standing, turns }) }))
      }),
      () => (refusal === undefined ? Effect.void : Effect.fail(refusal))
    )
  })

const name = (entity: Entity, content: string): void => {
  if (entity.record.title !== "" || entity.record.titled) return
  entity.firstMessage = content
  entity.amend({ title: Title.titleOf(content) })
}

/**
 * Begins a turn, bringing the session up first. Once the turn is taken up the message is sent whoever leaves; one that
 * cannot be sent ends its turn.
 */
export const send = (
  entity: Entity,
  content: string
): Effect.Effect<string, ActivationError | SessionConflict | SessionsBusy> =>
  entity.inOrder(ensureActive(entity), link =>
    Effect.uninterruptible(
      Effect.gen(function* () {
        const turnId = yield* Ids.turn
        yield* accept(entity, turnId)
        entity.messages.set(turnId, content)
        name(entity, content)
        yield* Effect.catchAll(link.send({ type: "message", content, turnId }), error => notSent(entity, turnId, error))
        return turnId
      })
    )
  )

const notSent = (
  entity: Entity,
  turnId: string,
  error: AgentPlatformConnectionError
): Effect.Effect<never, AgentPlatformConnectionError | SessionNotActive> =>
  Effect.gen(function* () {
    yield* entity.journal.updateSurely(standing => {
      const { turns, events } = Turns.step(standing.turns, Session.errored("not_sent", error.message)(turnId))
      return { standing: { ...standing, turns }, events }
    })
    return yield* entity.isRunning ? error : notActive()
  })

/** Asks the agent to end a turn; its end comes as an event. */
export const interrupt = (
  entity: Entity,
  turnId: string | undefined
): Effect.Effect<string, SessionNotActive | SessionConflict | AgentPlatformConnectionError> =>
  Effect.gen(function* () {
    const link = yield* running(entity)
    const { turns } = entity.journal.standing()
    const wanted = turnId ?? Turns.current(turns)
    if (wanted === undefined) return yield* new SessionConflict({ message: "No turn is open" })
    if (!turns.open.has(wanted)) {
      return yield* new SessionConflict({ message: `Turn ${JSON.stringify(wanted)} is not open` })
    }
    yield* link.send({ type: "interrupt", turnId: wanted })
    return wanted
  })

/** Passes on an answer to a question or an approval that is open. */
export const answer = (
  entity: Entity,
  requestId: string,
  value: unknown
): Effect.Effect<void, SessionNotActive | SessionConflict | AgentPlatformConnectionError> =>
  Effect.gen(function* () {
    const link = yield* running(entity)
    if (!entity.requests.has(requestId)) {
      return yield* new SessionConflict({
        message: `Nothing that goes by ${JSON.stringify(requestId)} waits for an answer`
      })
    }
    yield* link.send({ type: "answer", requestId, answer: value })
  })
