/** Pages of events whose history changes while they are read. */
import { expect, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { Clients, type ClientsShape } from "../../../src/Gateway/Clients.ts"
import { Conversations } from "../../../src/Gateway/Conversations.ts"
import { offsetOf } from "../../../src/Gateway/HttpSessions/DurableStream.ts"
import * as Events from "../../../src/Gateway/HttpSessions/Events.ts"
import { type Frame, SessionNotFound, type Subscriber, type Subscription } from "../../../src/Gateway/Sessions.ts"
import * as DrainingSignal from "../../../src/Http/DrainingSignal.ts"
import type { Reply } from "../../../src/Http/Reply.ts"

const MiB = 1024 * 1024

/** Events of a size. */
const framesAfter = (after: number, count: number, bytes: number): ReadonlyArray<Frame> =>
  Array.from({ length: count }, (_, index) => ({
    seq: after + 1 + index,
    type: "text_delta",
    data: Buffer.from(JSON.stringify({ seq: after + 1 + index, text: "x".repeat(bytes) }))
  }))

/** Answers to requests for the events of a history, which `read` returns. */
const answers = (
  headSeq: number,
  read: (
    after: number,
    subscriber: Subscriber
  ) => { readonly frames: ReadonlyArray<Frame>; readonly trimmedSeq: number },
  get: Effect.Effect<unknown, SessionNotFound> = Effect.void,
  onSubscribed: (subscriber: Subscriber) => void = () => {}
) =>
  Effect.map(
    Events.make,
    ({ answer }) =>
      (offset?: string, live?: "long-poll") =>
        Effect.either(
          answer({
            caller: { tenant: "t", actor: "a" },
            expiresAt: undefined,
            sessionId: "s",
            offset,
            live,
            cursor: undefined,
            ifNoneMatch: undefined,
            isHead: false
          })
        )
  ).pipe(
    Effect.provide(
      Layer.mergeAll(
        DrainingSignal.layer,
        Layer.succeed(Conversations, { read: () => Effect.die("not read") }),
        Layer.succeed(Clients, {
          takeSlot: () => ({ offer: () => {}, release: () => {} }),
          tags: [],
          sessions: {
            get: () => get,
            subscribe: (_: unknown, __: unknown, subscriber: Subscriber) =>
              Effect.sync(() => {
                onSubscribed(subscriber)
                return {
                  epoch: "e",
                  headSeq,
                  trimmedSeq: 0,
                  publishedSeq: () => headSeq,
                  read: (after: number) => Effect.sync(() => read(after, subscriber))
                } as Partial<Subscription> as Subscription
              })
          }
        } as unknown as ClientsShape)
      )
    )
  )

const seqsOf = ({ body }: Reply): ReadonlyArray<number> =>
  (JSON.parse(String(body)) as ReadonlyArray<{ readonly seq: number }>).map(({ seq }) => seq)

const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, index) => from + index)

it.scoped("a page is whole up to 8 MiB, and the next one continues it", () =>
  Effect.gen(function* () {
    const ask = yield* answers(100, after => ({
      frames: framesAfter(after, Math.min(10, 100 - after), MiB / 10),
      trimmedSeq: 0
    }))
    const first = yield* Effect.flatten(ask())
    expect(first.headers["stream-up-to-date"]).toBeUndefined()
    expect(seqsOf(first)).toEqual(range(1, 80))
    const rest = yield* Effect.flatten(ask(first.headers["stream-next-offset"]))
    expect(rest.headers["stream-up-to-date"]).toBe("true")
    expect(seqsOf(rest)).toEqual(range(81, 100))
  })
)

it.scoped("events that are removed while a page is read end it before the gap", () =>
  Effect.gen(function* () {
    const ask = yield* answers(30, after => ({
      frames: framesAfter(Math.max(after, after === 0 ? 0 : 20), 5, 10),
      trimmedSeq: after === 0 ? 0 : 20
    }))
    const page = yield* Effect.flatten(ask())
    expect(seqsOf(page)).toEqual(range(1, 5))
    expect(page.headers["stream-up-to-date"]).toBeUndefined()
    const gone = yield* ask(page.headers["stream-next-offset"])
    expect(gone).toMatchObject({ left: { _tag: "Gone" } })
    // Without an offset, what is kept is the answer.
    const other = yield* answers(25, after => ({ frames: framesAfter(Math.max(after, 20), 5, 10), trimmedSeq: 20 }))
    expect(seqsOf(yield* Effect.flatten(other("-1")))).toEqual(range(21, 25))
  })
)

it.scoped("a history that is lost while a page is read is 503, and no empty history", () =>
  Effect.gen(function* () {
    const ask = yield* answers(30, (_, subscriber) => {
      subscriber.onLost()
      return { frames: [], trimmedSeq: 30 }
    })
    expect(yield* ask()).toMatchObject({ left: { _tag: "ServiceUnavailable", headers: { "retry-after": "1" } } })
  })
)

it.scoped("a session that is deleted while a client's next events are read has ended", () =>
  Effect.gen(function* () {
    let isDeleted = false
    const ask = yield* answers(
      30,
      after =>
        isDeleted ? { frames: [], trimmedSeq: 30 } : { frames: framesAfter(after, 20 - after, 10), trimmedSeq: 0 },
      Effect.suspend(() => (isDeleted ? new SessionNotFound({ sessionId: "s" }) : Effect.void))
    )
    const first = yield* Effect.flatten(ask(offsetOf({ epoch: "e", seq: 0 }), "long-poll"))
    expect(seqsOf(first)).toEqual(range(1, 20))
    isDeleted = true
    const ended = yield* Effect.flatten(ask(first.headers["stream-next-offset"], "long-poll"))
    expect(ended).toMatchObject({ status: 204, headers: { "stream-closed": "true" } })
  })
)

it.scoped("a poll whose session is evicted or moves to another node ends without events: nothing is lost", () =>
  Effect.gen(function* () {
    const evict = (subscriber: Subscriber) => subscriber.onLost()
    const ask = yield* answers(30, () => ({ frames: [], trimmedSeq: 0 }), Effect.void, evict)
    const offset = offsetOf({ epoch: "e", seq: 30 })
    const ended = yield* Effect.flatten(ask(offset, "long-poll"))
    expect(ended).toMatchObject({ status: 204, headers: { "stream-next-offset": offset } })
  })
)
