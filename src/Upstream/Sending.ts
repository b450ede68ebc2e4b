/**
 * Handing frames over to the sockets of an instance's connection, each frame once and to one socket.
 */
import { Duration, Effect, type Scope } from "effect"
import * as Monotonic from "../Monotonic.ts"
import * as PlatformEvent from "./PlatformEvent.ts"
import type { OpenSocket } from "./PlatformSocket.ts"
import { UpstreamFailure } from "./UpstreamFailure.ts"

/** A socket, and the turns of messages that were handed to it and that the platform is not known to have read. */
export interface Carrier {
  readonly socket: OpenSocket
  readonly unread: Set<string>
}

/** Does something with the socket that stands, once there is one, in the very step that finds it standing. */
export type OnceStanding = <A>(f: (carrier: Carrier) => A) => Effect.Effect<A, UpstreamFailure>

/** How a frame is sent. */
export interface SendOptions {
  /** How long it waits for its turn and for a connection, 15 s where it is not given. */
  readonly within?: Duration.DurationInput | undefined
  /** Asked in the moment in which it is handed over, which does not happen where this says no. */
  readonly claim?: (() => boolean) | undefined
}

/** Hands a frame over. After a failure it has certainly not been sent. */
export type Send<E> = (frame: PlatformEvent.PlatformFrame, options?: SendOptions) => Effect.Effect<void, E>

const limit = Duration.seconds(15)

/** Hands a frame over, and waits until the network has taken it. */
const hand = ({ socket, unread }: Carrier, frame: PlatformEvent.PlatformFrame, scope: Scope.Scope) => {
  const handed = socket.send(PlatformEvent.toFrame(frame))
  if (frame.type !== "message") return Effect.ignore(handed)
  const read = Effect.map(socket.arrival, () => unread.delete(frame.turnId))
  // What the socket does not take any more is among what its end leaves behind.
  return Effect.ignore(Effect.zipRight(handed, Effect.forkIn(Effect.ignore(read), scope)))
}

/** Sends frames one after the other; `scope` is that of the sockets. */
export const make = (onceStanding: OnceStanding, scope: Scope.Scope): Effect.Effect<Send<UpstreamFailure>> =>
  Effect.map(Effect.makeSemaphore(1), turn => (frame, { within = limit, claim } = {}) => {
    let carrier: Carrier | undefined
    let isDecided = false
    const decide = (standing: Carrier): void => {
      isDecided = true
      if (claim?.() === false) return
      carrier = standing
      if (frame.type === "message") standing.unread.add(frame.turnId)
    }
    const revoke = (): void => {
      isDecided = false
      if (frame.type === "message") carrier?.unread.delete(frame.turnId)
    }
    const release = turn.release(1)
    // Whoever waits can be interrupted, wherever this runs; from the decision on the frame is handed over.
    const inTurn = Effect.gen(function* () {
      yield* Effect.interruptible(turn.take(1))
      yield* Effect.onError(Effect.interruptible(onceStanding(decide)), () =>
        Effect.zipRight(Effect.sync(revoke), release)
      )
      // A network that takes nothing holds up the frames behind this one, and nobody who waits for this one.
      yield* carrier === undefined
        ? release
        : Effect.forkIn(Effect.ensuring(Effect.interruptible(hand(carrier, frame, scope)), release), scope)
    })
    return Effect.flatMap(Effect.timeoutOption(Effect.uninterruptible(inTurn), within), () => {
      if (isDecided) return Effect.void
      return new UpstreamFailure({
        operation: "connect",
        reason: "timeout",
        message: `No connection to the instance within ${Monotonic.words(within)}`
      })
    })
  })
