/** Messages, answers and stops at any time, of an agent whose runs end in any way. */
import { expect } from "@effect/vitest"
import { Duration, Effect, Fiber, FastCheck as fc, Logger, TestClock, TestContext } from "effect"
import { type Follower, failure, type Received, type RunInput } from "../../../src/Upstream/AgUiAgent/Agent.ts"
import * as AgentConnection from "../../../src/Upstream/AgUiAgent/AgentConnection.ts"
import { UpstreamFailure } from "../../../src/Upstream/Resilience/UpstreamFailure.ts"
import { times } from "../../Scale.ts"
import { test } from "../../Tests.ts"

const received = (type: string, members: object = {}): Received => ({
  ...{ id: undefined, timestamp: undefined, size: 1, type },
  payload: { type, ...members }
})

const ask = (count: number) => {
  const interrupts = Array.from({ length: count }, (_, index) => ({ id: `q${index}`, reason: "confirmation" }))
  return received("RUN_FINISHED", { outcome: { type: "interrupt", interrupts } })
}

const text = received("TEXT_MESSAGE_CHUNK", { messageId: "m", delta: "x" })
const call = received("TOOL_CALL_CHUNK", { toolCallId: "c", toolCallName: "t", delta: "{}" })
const finish = received("RUN_FINISHED")
const refused = new UpstreamFailure({ operation: "run", reason: "connection", isUnreached: true, message: "no" })

/** The end of a run: a failure, events and then the end of the stream, or none. */
const lasts = {
  complete: [text, finish],
  calling: [call, finish],
  asks: [text, ask(1)],
  "asks twice": [ask(2), text, finish],
  "breaks off": [text],
  error: [received("RUN_ERROR", { message: "no" }), finish],
  malformed: [failure("malformed", "no"), finish],
  refused,
  hangs: undefined
} as const

const script = fc.record({
  before: fc.integer({ min: 0, max: 3 }),
  after: fc.integer({ min: 0, max: 3 }),
  last: fc.constantFrom(...(Object.keys(lasts) as Array<keyof typeof lasts>))
})
type Script = typeof script extends fc.Arbitrary<infer A> ? A : never

const step = fc.oneof(
  fc.constant({ do: "send" } as const),
  fc.record({ do: fc.constant("wait" as const), seconds: fc.integer({ min: 0, max: 4 }) }),
  fc.record({ do: fc.constant("stop" as const), turn: fc.nat(9) }),
  fc.record({ do: fc.constant("answer" as const), id: fc.constantFrom("q0", "q1", "other") })
)

const play = ({ after, before, last }: Script, { begin, end, take }: Follower) =>
  Effect.gen(function* () {
    yield* Effect.sleep(Duration.seconds(before))
    const all = lasts[last]
    if (all === refused) return yield* refused
    begin()
    yield* take([received("RUN_STARTED")])
    yield* Effect.sleep(Duration.seconds(after))
    if (all === undefined) return yield* Effect.never
    if (yield* take(all as ReadonlyArray<Received>)) yield* end
  })

test.effect("each turn ends once, and the next message has its turn", function* () {
  yield* Effect.promise(() =>
    fc.assert(
      fc.asyncProperty(fc.array(script, { maxLength: 12 }), fc.array(step, { maxLength: 25 }), (scripts, steps) =>
        Effect.runPromise(
          Effect.gen(function* () {
            const started: Array<RunInput> = []
            const ends = new Map<string, Array<string>>()
            let open = 0
            let isLast = false
            const connection = yield* AgentConnection.make({
              threadId: "thread",
              history: { messages: 10, bytes: 10_000 },
              conversation: Effect.succeed({
                ...{ epoch: "e", seq: 0, trimmedSeq: 0, turns: [], waiting: [], messages: [] }
              }),
              run: (input, follower) => {
                const next = (isLast ? undefined : scripts[started.length]) ?? { before: 0, after: 0, last: "complete" }
                started.push(input)
                expect(++open).toBe(1)
                return Effect.ensuring(
                  play(next, follower),
                  Effect.sync(() => open--)
                )
              }
            })
            yield* Effect.forkScoped(
              Effect.forever(
                Effect.map(connection.take, ([events]) => {
                  for (const one of events) {
                    if (!("payload" in one) || !/^turn\.(completed|failed|cancelled)$/.test(one.type)) continue
                    const turnId = String(one.payload.turnId)
                    ends.set(turnId, [...(ends.get(turnId) ?? []), one.type])
                  }
                })
              )
            )
            const sent: Array<Fiber.Fiber<boolean>> = []
            const send = Effect.suspend(() =>
              Effect.map(
                Effect.fork(
                  Effect.isSuccess(connection.send({ type: "message", content: "hi", turnId: `t${sent.length}` }))
                ),
                fiber => sent.push(fiber)
              )
            )
            for (const one of steps) {
              // A message is sent before it is stopped.
              if (one.do === "send") yield* Effect.zipRight(send, Effect.yieldNow())
              else if (one.do === "wait") yield* TestClock.adjust(Duration.seconds(one.seconds))
              else if (one.do === "answer")
                yield* Effect.ignore(connection.send({ type: "answer", requestId: one.id, answer: true }))
              else if (one.turn < sent.length)
                yield* Effect.ignore(connection.send({ type: "interrupt", turnId: `t${one.turn}` }))
            }
            yield* TestClock.adjust("2 minutes")
            for (const turn of sent.keys()) {
              if (!ends.has(`t${turn}`))
                yield* Effect.ignore(connection.send({ type: "interrupt", turnId: `t${turn}` }))
              yield* TestClock.adjust("1 minute")
            }
            const last = sent.length
            isLast = true
            yield* send
            yield* TestClock.adjust("1 minute")
            expect(ends.get(`t${last}`)).toEqual(["turn.completed"])
            for (const [turn, fiber] of sent.entries()) {
              const [first, ...more] = ends.get(`t${turn}`) ?? []
              if (yield* Fiber.join(fiber)) expect([turn, first]).not.toEqual([turn, undefined])
              // A stop of a turn that has ended is answered again.
              expect([turn, more.filter(end => end !== "turn.cancelled")]).toEqual([turn, []])
            }
          }).pipe(
            Effect.scoped,
            Effect.provide([TestContext.TestContext, Logger.remove(Logger.defaultLogger)])
          ) as Effect.Effect<void>
        )
      ),
      { numRuns: times(40) }
    )
  )
})
