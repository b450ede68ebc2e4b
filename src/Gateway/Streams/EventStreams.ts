/** The event streams of sessions: how they are opened, and ended in time. */
import { Cause, Deferred, Effect, type Random, Runtime, Scope } from "effect"
import * as Supervision from "../../base/Supervision.ts"
import * as Monotonic from "../../base/Time/Monotonic.ts"
import { type ApiError, ServiceUnavailable } from "../../Http/ApiError.ts"
import { DrainingSignal } from "../../Http/DrainingSignal.ts"
import { Clients } from "../Clients.ts"
import * as GatewayMetrics from "../GatewayMetrics.ts"
import type { Subscription } from "../Sessions.ts"
import { errorOf } from "./Errors.ts"
import { type Beginning, type Client, EventStream, type Shared, timing } from "./EventStream.ts"

/** The time and the randomness of streams. */
export type Time = Pick<Shared, "wallClock" | "random">

/** Opens event streams. */
export interface EventStreams {
  /**
   * Subscribes to a session for a client. The stream has to be sent soon, or released. Fails if all connections of the
   * gateway are in use, before the session is found, and as `found` and `beginningOf` do.
   */
  readonly open: <Found extends { readonly sessionId: string }>(
    client: Client,
    found: Effect.Effect<Found, ApiError>,
    /** Runs with the scope of the subscription. */
    beginningOf: (
      subscription: Subscription,
      time: Time,
      found: Found
    ) => Effect.Effect<Omit<Beginning, "subscription">, ApiError, Scope.Scope>
  ) => Effect.Effect<EventStream, ApiError>
}

const next = (random: Random.Random) => () => Effect.runSync(random.next)

/**
 * Ends its streams as the service drains, and at the end of the scope. `protocol` names them in metrics, and `sent` counts
 * their events.
 */
export const make = (
  protocol: string,
  sent: Shared["sent"] = GatewayMetrics.sentOverHttp
): Effect.Effect<EventStreams, never, Clients | DrainingSignal | Scope.Scope> =>
  Effect.gen(function* () {
    const clients = yield* Clients
    const draining = yield* DrainingSignal
    const clock = yield* Effect.clock
    const runFork = Runtime.runFork(yield* Effect.runtime<never>())
    const streams = new Set<EventStream>()
    const occupancy = new Supervision.Occupancy()
    const now = () => Monotonic.unsafeMillis(clock)
    const shared: Shared = {
      clients,
      sent,
      now,
      wallClock: () => clock.unsafeCurrentTimeMillis(),
      random: next(yield* Effect.random),
      run: work => void runFork(work),
      onEnd: stream => {
        streams.delete(stream)
        occupancy.set(streams.size > 0)
      }
    }

    /** Calls each of the streams. One that throws is released, and the others are still called. */
    const callEach = (call: (stream: EventStream) => void): void => {
      for (const stream of streams) {
        try {
          call(stream)
        } catch (defect) {
          runFork(Effect.zipRight(stream.release, Effect.logError("An event stream has failed", Cause.die(defect))))
        }
      }
    }

    const tick = Effect.sync(() => {
      const time = now()
      callEach(stream => {
        if (stream.tick(time)) runFork(stream.release)
      })
    })
    const drain = Effect.sync(() => callEach(stream => stream.endWithin(timing.drain)))
    yield* Effect.addFinalizer(() =>
      Effect.suspend(() => {
        callEach(stream => stream.end("draining"))
        return Effect.forEach([...streams], stream => stream.release, { discard: true })
      })
    )
    yield* Supervision.tickScoped("ticks of event streams", "1 second", occupancy, tick)
    yield* Effect.forkScoped(Effect.interruptible(Effect.zipRight(draining.started, drain)))

    return {
      open: (client, found, beginningOf) =>
        Effect.uninterruptibleMask(restore =>
          Effect.gen(function* () {
            if (draining.hasStarted()) return yield* ServiceUnavailable.later("The service is shutting down")
            const slot = client.slot ?? clients.takeSlot(client.caller.tenant)
            if (slot instanceof ServiceUnavailable) return yield* slot
            // Others may need the connection while a message waits for its instance.
            const reclaimed = yield* Deferred.make<never, ApiError>()
            const busy = ServiceUnavailable.later("Other clients need the connection")
            slot.offer({ onReclaim: () => Deferred.unsafeDone(reclaimed, Effect.fail(busy)) })
            const session = yield* restore(Effect.raceFirst(found, Deferred.await(reclaimed))).pipe(
              Effect.tap(() => Effect.flatMap(Deferred.isDone(reclaimed), isLost => (isLost ? busy : Effect.void))),
              Effect.onError(() => Effect.sync(() => slot.release()))
            )
            const scope = yield* Scope.make()
            const stream = new EventStream(client, slot, scope, shared)
            slot.offer({ onReclaim: () => stream.end("busy") })
            streams.add(stream)
            occupancy.set(true)
            // It may have started in the meantime.
            if (draining.hasStarted()) stream.endWithin(timing.drain)
            const subscribed = clients.sessions.subscribe(client.caller, session.sessionId, stream.feed).pipe(
              Effect.mapError(errorOf),
              Effect.flatMap(subscription =>
                Effect.map(beginningOf(subscription, shared, session), beginning =>
                  stream.begin({ subscription, ...beginning })
                )
              ),
              Scope.extend(scope)
            )
            yield* Effect.onError(restore(subscribed), () => stream.release)
            GatewayMetrics.streams.increment(protocol, clients.tags)
            // If its caller is interrupted now, it is released because it is never sent.
            return stream
          })
        )
    }
  })
