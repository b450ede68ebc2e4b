/** A platform whose connections a test opens, refuses and drops. */
import { it } from "@effect/vitest"
import { Effect, Exit, Mailbox, Ref, Stream } from "effect"
import * as InstanceConnection from "../../../../src/Upstream/AgentPlatform/InstanceConnection.ts"
import { type OpenSocket, SocketClosed } from "../../../../src/Upstream/AgentPlatform/PlatformSocket.ts"
import type * as AgentPlatform from "../../../../src/Upstream/AgentPlatform.ts"
import { OversizedFrame } from "../../../../src/Upstream/PlatformEvent.ts"
import { UpstreamFailure } from "../../../../src/Upstream/Resilience/UpstreamFailure.ts"
import { given } from "../../../Given.ts"
import { eventsOf } from "../../Platform.ts"

/** The server of one socket. */
export interface Peer {
  /** The event that the client resumed after. */
  readonly after: string | undefined
  readonly sent: Array<string>
  readonly emit: (...events: ReadonlyArray<Readonly<Record<string, unknown>> | OversizedFrame | string>) => void
  readonly drop: (tooLarge?: boolean) => void
  readonly pings: () => number
  readonly answerPings: () => void
  /** Reports that all data sent so far was read. */
  readonly read: () => void
  /** It reads nothing more from then on. */
  readonly deafen: () => void
  /** Emits these once it has been asked for a sign of life and looked at once more, which does not see them yet. */
  readonly emitTooLate: (...events: ReadonlyArray<Readonly<Record<string, unknown>>>) => void
  readonly isReleased: () => boolean
  /** Frames that were not taken yet. */
  readonly waiting: () => number
}

type Dial = "open" | UpstreamFailure

export const failure = (more: Partial<UpstreamFailure>) =>
  new UpstreamFailure({ operation: "connect", reason: "connection", message: "refused", ...more })

export const gone = failure({ reason: "status", statusCode: 404, message: "gone" })

/** A platform whose n-th connection is answered with the n-th of the dials, the last one always. */
export const makePlatform = (...dials: readonly [Dial, ...Array<Dial>]) => {
  const peers: Array<Peer> = []
  const tries: Array<{ readonly again: boolean }> = []

  const dial = (after: string | undefined, again: boolean) =>
    Effect.gen(function* () {
      const answer = dials[Math.min(tries.length, dials.length - 1)]!
      tries.push({ again })
      if (answer !== "open") return yield* answer
      const frames = yield* Mailbox.make<string | OversizedFrame, SocketClosed>()
      let [heard, pings, answers, released, closed, waiting] = [0, 0, false, false, false, 0]
      const sent: Array<string> = []
      const reading = Effect.unsafeMakeLatch(false)
      let late: Array<Readonly<Record<string, unknown>>> = []
      const emit: Peer["emit"] = (...events) => {
        for (const event of events) {
          heard++
          waiting++
          frames.unsafeOffer(
            typeof event === "string" || event instanceof OversizedFrame ? event : JSON.stringify(event)
          )
        }
      }
      yield* Effect.addFinalizer(() =>
        Effect.sync(() => {
          released = true
          closed = true
        })
      )
      peers.push({
        after,
        sent,
        emit,
        emitTooLate: (...events) => {
          late = [...events]
        },
        drop: (tooLarge = false) => {
          closed = true
          frames.unsafeDone(Exit.fail(new SocketClosed({ code: 1006, tooLarge, message: "dropped" })))
        },
        pings: () => pings,
        answerPings: () => {
          answers = true
        },
        read: () => reading.unsafeOpen(),
        deafen: () => reading.unsafeClose(),
        isReleased: () => released,
        waiting: () => waiting
      })
      const socket: OpenSocket = {
        send: text =>
          Effect.suspend(() => {
            if (closed) return Effect.fail(new SocketClosed({ code: 1006, tooLarge: false, message: "dropped" }))
            sent.push(text)
            return Effect.void
          }),
        take: Effect.catchTag(frames.take, "NoSuchElementException", Effect.die).pipe(
          Effect.tap(() =>
            Effect.sync(() => {
              waiting--
            })
          )
        ),
        ping: Effect.sync(() => {
          pings++
          if (answers) heard++
        }),
        acknowledged: reading.await,
        received: () => {
          const before = heard
          if (pings > 0) emit(...late.splice(0))
          return before
        },
        isClosed: () => closed
      }
      return socket
    })

  const connect = (after?: string) => InstanceConnection.make({ dial, after, instanceId: "i-1" })
  return { connect, peers, tries }
}

/** Reads all events in the background: the ids so far, and the fiber that reads. */
export const collect = <E>(connection: AgentPlatform.InstanceConnection<E>) =>
  Effect.gen(function* () {
    const ids = yield* Ref.make<ReadonlyArray<string | undefined>>([])
    const fiber = yield* eventsOf(connection).pipe(
      Stream.runForEach(({ id }) => Ref.update(ids, all => [...all, id])),
      Effect.fork
    )
    return { ids: Ref.get(ids), fiber }
  })

/** The dials of a platform, all of which it opens unless a test says otherwise. */
type Dials = Parameters<typeof makePlatform>

const connect = (dials: Dials = ["open"]) =>
  Effect.gen(function* () {
    const platform = makePlatform(...dials)
    return { ...platform, connection: yield* platform.connect() }
  })

/** Tests of a connection. */
export const connected = given(it.scoped, connect)

/** Tests of a connection of which all events are read. */
export const read = given(it.scoped, (dials?: Dials) =>
  Effect.gen(function* () {
    const made = yield* connect(dials)
    return { ...made, ...(yield* collect(made.connection)) }
  })
)

export const message = { type: "message", content: "hi", turnId: "t" } as const
