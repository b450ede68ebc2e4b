import { type Context, Duration, Effect, Exit, Fiber, FiberRef, HashMap, Scope, Stream } from "effect"
import type { AgentPlatform, AgentPlatformConnectionError } from "../../Upstream/AgentPlatform.ts"
import type { Heard } from "../../Upstream/InstanceConnection.ts"
import type { Send } from "../../Upstream/Sending.ts"
import * as Turns from "../EventMapping/Turns.ts"
import * as GatewayMetrics from "../GatewayMetrics.ts"
import { ingest, Seen } from "./Ingest.ts"
import type { Journal } from "./Journal.ts"
import * as Session from "./SessionState.ts"
import { longestReconnection } from "./Settings.ts"

/** A session's connection to its instance, from activation to the instance's end. */
export interface Link {
  readonly instanceId: string
  /** Begins to take in what the instance tells, until it is gone; the journal must say by then that it runs. */
  readonly listen: Effect.Effect<void>
  /** As that of the connection to the instance. */
  readonly send: Send<AgentPlatformConnectionError>
  /** Waits until the connection stands. It fails once there is no further one. */
  readonly ready: Effect.Effect<void, AgentPlatformConnectionError>
  /** Leaves the instance alone. Nothing of it reaches the session after that. */
  readonly close: Effect.Effect<void>
}

export interface Options {
  /** For logs. */
  readonly session: string
  readonly instanceId: string
  readonly journal: Journal
  readonly platform: Context.Tag.Service<AgentPlatform>
  /** Run when nothing more will come, after the journal has been told. */
  readonly onEnd: Effect.Effect<void>
}

/** Events remembered to recognise repetitions, as from a platform that replays more than it was asked for. */
const remembered = 4096

const warned = new Set<string>()

/** Malformed events are told of once for each type, and only the types that there are tables for. */
const report = ({ dropped, malformed }: ReturnType<typeof ingest>) =>
  Effect.suspend(() => {
    for (const type of dropped) GatewayMetrics.dropped.increment(type)
    const news = [...new Set(malformed)].filter(type => !warned.has(type))
    for (const type of news) warned.add(type)
    return Effect.forEach(
      news,
      type =>
        Effect.logWarning("The agent platform sent an event whose fields do not fit its type").pipe(
          Effect.annotateLogs({ type })
        ),
      { discard: true }
    )
  })

/** Connects; what the instance tells waits until it is listened to. */
export const open = (options: Options): Effect.Effect<Link, AgentPlatformConnectionError, Scope.Scope> =>
  Effect.gen(function* () {
    const { instanceId, journal, platform } = options
    const outer = yield* Effect.scope
    const scope = yield* Scope.fork(outer, { _tag: "Sequential" })
    const connection = yield* platform.connect(instanceId).pipe(
      Scope.extend(scope),
      Effect.onError(cause => Scope.close(scope, Exit.failCause(cause)))
    )
    const seen = new Seen(remembered)
    const lost = new Set<string>()

    /**
     * Has the agent end turns that it begins although clients were told their end: whoever has sent the message again
     * would have it carried out twice.
     */
    const callOff = (result: ReturnType<typeof ingest>): Effect.Effect<void> =>
      Effect.suspend(() => {
        for (const turnId of result.lost) lost.add(turnId)
        while (lost.size > Turns.most) lost.delete(lost.values().next().value!)
        return Effect.forEach(
          result.belated.filter(turnId => lost.delete(turnId)),
          turnId => Effect.forkIn(Effect.ignore(connection.send({ type: "interrupt", turnId })), scope),
          { discard: true }
        )
      })

    const ifOurs =
      (f: (standing: Session.Standing) => Session.Step) =>
      (standing: Session.Standing): Session.Step =>
        standing.lease?.instanceId === instanceId ? f(standing) : Session.stay(standing)

    const take = (heard: ReadonlyArray<Heard>) =>
      Effect.suspend(() => {
        const news = heard.filter(one => seen.isNews(one))
        if (news.length === 0) return Effect.void
        let result: ReturnType<typeof ingest> | undefined
        const step = ifOurs(standing => {
          result = ingest(standing, news)
          return result.step
        })
        return Effect.zipRight(
          journal.updateSurely(step),
          Effect.suspend(() => {
            if (result === undefined) return Effect.void
            const isUsual = result.lost.length === 0 && result.belated.length === 0
            return isUsual ? report(result) : Effect.zipRight(callOff(result), report(result))
          })
        )
      })

    const hear: Effect.Effect<void, AgentPlatformConnectionError> = Effect.flatMap(connection.take, ([heard, isOver]) =>
      Effect.zipRight(take(heard), isOver ? Effect.void : hear)
    )

    /** Fails with why the instance counts as lost. */
    const watch = Effect.gen(function* () {
      const deadline = Effect.fail(`it could not be reached for ${Duration.format(longestReconnection)}`)
      let patience: Fiber.Fiber<never, string> | undefined
      const expired = yield* Effect.makeLatch(false)
      const onState = (state: "connected" | "reconnecting" | "closed") =>
        Effect.gen(function* () {
          if (state === "reconnecting" && patience === undefined) {
            patience = yield* Effect.fork(
              Effect.zipRight(Effect.sleep(longestReconnection), Effect.zipRight(expired.open, Effect.never))
            )
            yield* journal.updateSurely(
              ifOurs(standing => Session.move(standing, "disconnected", "the connection was lost"))
            )
          }
          if (state === "connected" && patience !== undefined) {
            yield* Fiber.interrupt(patience)
            patience = undefined
            yield* journal.updateSurely(ifOurs(standing => Session.move(standing, "reconnected")))
          }
        })
      const states = Effect.zipRight(Stream.runForEach(connection.states, onState), Effect.never)
      return yield* Effect.raceFirst(states, Effect.zipRight(expired.await, deadline))
    })

    const lose = (trigger: "ended" | "failed", reason: string) =>
      journal.updateSurely(
        ifOurs(standing =>
          Session.isRunning(standing.state)
            ? Session.andThen(
                Session.endTurns(standing, Session.errored("instance_lost", `The instance was lost: ${reason}`)),
                standing => Session.move(standing, trigger, reason)
              )
            : Session.stay(standing)
        )
      )

    const run = Effect.raceFirst(
      Effect.matchEffect(hear, {
        onFailure: error => lose("failed", error.message),
        onSuccess: () => lose("ended", "the instance is gone")
      }),
      Effect.catchAll(watch, reason => lose("failed", reason))
    ).pipe(
      Effect.catchAllCause(cause =>
        Effect.zipRight(
          Effect.logError("A session stumbled over its instance", cause),
          lose("failed", "the gateway failed")
        )
      ),
      Effect.zipRight(options.onEnd)
    )
    // It outlives the request that activates, whose lines say whose request that is.
    const annotations = HashMap.make(["session", options.session] as const)
    const apart = Effect.locally(run, FiberRef.currentLogAnnotations, annotations)
    let fiber: Fiber.Fiber<void> | undefined

    return {
      instanceId,
      listen: Effect.map(Effect.forkIn(Effect.interruptible(apart), outer), forked => {
        fiber = forked
      }),
      send: connection.send,
      ready: connection.ready,
      close: Effect.suspend(() =>
        Effect.zipRight(fiber === undefined ? Effect.void : Fiber.interrupt(fiber), Scope.close(scope, Exit.void))
      )
    }
  })
