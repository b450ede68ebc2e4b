/**
 * Sends frames by the sockets of an instance's connection, each frame at most once.
 */
import { Duration, Effect, type Scope } from "effect"
import * as Monotonic from "../Monotonic.ts"
import * as PlatformEvent from "./PlatformEvent.ts"
import type { OpenSocket } from "./PlatformSocket.ts"
import { UpstreamFailure } from "./Resilience/UpstreamFailure.ts"

/** A socket, and the turns whose messages were sent on it and have not been read by the platform. */
export interface TrackedSocket {
  readonly socket: OpenSocket
  readonly unacknowledged: Set<string>
}

/** Waits until there is an open socket, and runs `f` synchronously with it. */
export type WhenConnected = <A>(f: (socket: TrackedSocket) => A) => Effect.Effect<A, UpstreamFailure>

/** How long a frame waits, and whether it is still wanted. */
export interface SendOptions {
  /** How long to wait for earlier frames and for a connection; 15 s if absent. */
  readonly timeout?: Duration.DurationInput | undefined
  /** Called synchronously right before the frame is sent; if it returns `false`, the frame is dropped. */
  readonly claim?: (() => boolean) | undefined
}

/** Sends a frame. After a failure the frame was not sent. */
export type Send<E> = (frame: PlatformEvent.PlatformFrame, options?: SendOptions) => Effect.Effect<void, E>

const defaultTimeout = Duration.seconds(15)

/** Writes a frame to the network. */
const write = ({ socket, unacknowledged }: TrackedSocket, frame: PlatformEvent.PlatformFrame, scope: Scope.Scope) => {
  const written = socket.send(PlatformEvent.toFrame(frame))
  if (frame.type !== "message") return Effect.ignore(written)
  const read = Effect.map(socket.acknowledged, () => unacknowledged.delete(frame.turnId))
  // After a failure the message stays unacknowledged.
  return Effect.ignore(Effect.zipRight(written, Effect.forkIn(Effect.ignore(read), scope)))
}

/** Sends frames one after the other. `scope` is the scope of the sockets. */
export const make = (whenConnected: WhenConnected, scope: Scope.Scope): Effect.Effect<Send<UpstreamFailure>> =>
  Effect.map(Effect.makeSemaphore(1), semaphore => (frame, { timeout = defaultTimeout, claim } = {}) => {
    let socket: TrackedSocket | undefined
    let isDecided = false
    const decide = (current: TrackedSocket): void => {
      isDecided = true
      if (claim?.() === false) return
      socket = current
      if (frame.type === "message") current.unacknowledged.add(frame.turnId)
    }
    const revoke = (): void => {
      isDecided = false
      if (frame.type === "message") socket?.unacknowledged.delete(frame.turnId)
    }
    const release = semaphore.release(1)
    // Interruptible only while it waits.
    const inOrder = Effect.gen(function* () {
      yield* Effect.interruptible(semaphore.take(1))
      yield* Effect.onError(Effect.interruptible(whenConnected(decide)), () =>
        Effect.zipRight(Effect.sync(revoke), release)
      )
      // If the network is blocked, the frames behind this one wait, and the caller does not.
      yield* socket === undefined
        ? release
        : Effect.forkIn(Effect.ensuring(Effect.interruptible(write(socket, frame, scope)), release), scope)
    })
    return Effect.flatMap(Effect.timeoutOption(Effect.uninterruptible(inOrder), timeout), () => {
      if (isDecided) return Effect.void
      return new UpstreamFailure({
        operation: "connect",
        reason: "timeout",
        message: `No connection to the instance within ${Monotonic.words(timeout)}`
      })
    })
  })
