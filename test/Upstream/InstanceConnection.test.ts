import { describe, expect, it } from "@effect/vitest"
import {
  Chunk,
  Deferred,
  Effect,
  Exit,
  Fiber,
  FastCheck as fc,
  Logger,
  LogLevel,
  Option,
  Ref,
  Scope,
  Stream,
  TestClock,
  TestContext
} from "effect"
import * as InstanceConnection from "../../src/Upstream/InstanceConnection.ts"
import { type OpenSocket, SocketClosed } from "../../src/Upstream/PlatformSocket.ts"
import { UpstreamFailure } from "../../src/Upstream/Resilience/UpstreamFailure.ts"
import { SpscQueue } from "../../src/Upstream/SpscQueue.ts"
import * as Interleaving from "./Interleaving.ts"
import { eventsOf, stateOf } from "./Platform.ts"

/** The server of one socket. */
interface Peer {
  /** The event that the client resumed after. */
  readonly after: string | undefined
  readonly sent: Array<string>
  readonly emit: (...events: ReadonlyArray<Readonly<Record<string, unknown>> | string>) => void
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

const failure = (more: Partial<UpstreamFailure>) =>
  new UpstreamFailure({ operation: "connect", reason: "connection", message: "refused", ...more })

const gone = failure({ reason: "status", statusCode: 404, message: "gone" })

/** A platform whose n-th connection is answered with the n-th of the dials, the last one always. */
const makePlatform = (...dials: readonly [Dial, ...Array<Dial>]) => {
  const peers: Array<Peer> = []
  const tries: Array<{ readonly again: boolean }> = []

  const dial = (after: string | undefined, again: boolean) =>
    Effect.gen(function* () {
      const answer = dials[Math.min(tries.length, dials.length - 1)]!
      tries.push({ again })
      if (answer !== "open") return yield* answer
      const frames = new SpscQueue<string, SocketClosed>()
      let [heard, pings, answers, released, closed, waiting] = [0, 0, false, false, false, 0]
      const sent: Array<string> = []
      const reading = Effect.unsafeMakeLatch(false)
      let late: Array<Readonly<Record<string, unknown>>> = []
      const emit: Peer["emit"] = (...events) => {
        for (const event of events) {
          heard++
          waiting++
          frames.unsafeOffer(typeof event === "string" ? event : JSON.stringify(event))
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
            if (closed) return new SocketClosed({ code: 1006, tooLarge: false, message: "dropped" })
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

const collect = <E>(connection: InstanceConnection.InstanceConnection<E>) =>
  Effect.gen(function* () {
    const ids = yield* Ref.make<ReadonlyArray<string | undefined>>([])
    const fiber = yield* eventsOf(connection).pipe(
      Stream.runForEach(({ id }) => Ref.update(ids, all => [...all, id])),
      Effect.fork
    )
    return { ids: Ref.get(ids), fiber }
  })

const watch = <E>(connection: InstanceConnection.InstanceConnection<E>) =>
  Effect.gen(function* () {
    const fiber = yield* Effect.fork(Stream.runCollect(connection.states))
    yield* Effect.yieldNow()
    return Effect.map(Fiber.join(fiber), Chunk.toReadonlyArray)
  })

const message = { type: "message", content: "hi", turnId: "t" } as const

describe("InstanceConnection", () => {
  it.scoped("carries events in order and frames out", () =>
    Effect.gen(function* () {
      const { connect, peers } = makePlatform("open")
      const connection = yield* connect("e0")
      const { ids } = yield* collect(connection)
      expect(peers[0]!.after).toBe("e0")
      peers[0]!.emit({ type: "a", id: "e1" }, { type: "b" }, { type: "c", id: "e2" })
      yield* TestClock.adjust(0)
      expect(yield* ids).toEqual(["e1", undefined, "e2"])
      yield* connection.send(message)
      expect(peers[0]!.sent.map(text => JSON.parse(text))).toEqual([message])
      expect(yield* stateOf(connection)).toBe("connected")
    })
  )

  it.scoped("resumes after the last event with an id when the socket drops", () =>
    Effect.gen(function* () {
      const { connect, peers, tries } = makePlatform("open")
      const connection = yield* connect()
      const { ids } = yield* collect(connection)
      peers[0]!.emit({ type: "a", id: "e1" }, { type: "b", id: "e2" }, { type: "c" })
      peers[0]!.drop()
      yield* TestClock.adjust(0)
      expect(yield* ids).toEqual(["e1", "e2", undefined])
      yield* TestClock.adjust("200 millis")
      expect(peers).toHaveLength(2)
      expect(peers[1]!.after).toBe("e2")
      expect(tries).toEqual([{ again: false }, { again: true }])
      expect(peers[0]!.isReleased()).toBe(true)
      // A platform that repeats the event that it was to resume after is tolerated.
      peers[1]!.emit({ type: "b", id: "e2" }, { type: "d", id: "e3" })
      yield* TestClock.adjust(0)
      expect(yield* ids).toEqual(["e1", "e2", undefined, "e3"])
    })
  )

  it.scoped("logs what becomes of it as its own affair, not as that of the request that made it", () =>
    Effect.gen(function* () {
      const { connect, peers } = makePlatform("open")
      const lines: Array<unknown> = []
      const collecting = Logger.make<unknown, void>(({ annotations, message }) => {
        lines.push([message, Object.fromEntries(annotations)])
      })
      yield* connect().pipe(
        Effect.annotateLogs("request", "start_session"),
        Effect.provide(Logger.replace(Logger.defaultLogger, collecting))
      )
      peers[0]!.drop()
      yield* TestClock.adjust("200 millis")
      expect(lines).toEqual([
        [["Lost the connection to an agent instance; reconnecting"], { instanceId: "i-1", reason: "dropped" }],
        [["Connected to an agent instance again"], { instanceId: "i-1" }]
      ])
    })
  )

  it.scoped("shows its state, and ends when the instance is gone", () =>
    Effect.gen(function* () {
      const { connect, peers } = makePlatform("open", "open", gone)
      const connection = yield* connect()
      const { fiber } = yield* collect(connection)
      const states = yield* watch(connection)
      peers[0]!.drop()
      yield* TestClock.adjust("200 millis")
      expect(yield* stateOf(connection)).toBe("connected")
      peers[1]!.drop()
      yield* TestClock.adjust("1 second")
      yield* Fiber.join(fiber)
      expect(yield* states).toEqual(["connected", "reconnecting", "connected", "reconnecting", "closed"])
      expect(yield* stateOf(connection)).toBe("closed")
      expect(Chunk.toReadonlyArray(yield* Stream.runCollect(connection.states))).toEqual(["closed"])
      expect(yield* Effect.flip(connection.send(message))).toMatchObject({ reason: "connection" })
    })
  )

  for (const type of ["instance.stopped", "instance.failed"]) {
    it.scoped(`closes the socket that the platform leaves open after ${type}`, () =>
      Effect.gen(function* () {
        const { connect, peers, tries } = makePlatform("open")
        const connection = yield* connect()
        const { fiber, ids } = yield* collect(connection)
        peers[0]!.emit({ type, id: "e9" }, { type: "a", id: "e10" })
        yield* TestClock.adjust("1 second")
        expect(yield* Fiber.poll(fiber)).not.toEqual(Option.none())
        expect(yield* ids).toEqual(["e9"])
        expect(yield* stateOf(connection)).toBe("closed")
        expect(peers[0]!.isReleased()).toBe(true)
        expect(tries).toHaveLength(1)
      })
    )

    it.scoped(`ends without dialling again after ${type}`, () =>
      Effect.gen(function* () {
        const { connect, peers, tries } = makePlatform("open")
        const connection = yield* connect()
        const { fiber, ids } = yield* collect(connection)
        peers[0]!.emit({ type, id: "e9" })
        peers[0]!.drop()
        yield* Fiber.join(fiber)
        expect(yield* ids).toEqual(["e9"])
        yield* TestClock.adjust("1 hour")
        expect(tries).toHaveLength(1)
      })
    )
  }

  for (const refusal of [
    failure({ reason: "status", statusCode: 401 }),
    failure({ reason: "status", statusCode: 403 })
  ]) {
    it.scoped(`fails when the platform answers ${refusal.statusCode}`, () =>
      Effect.gen(function* () {
        const { connect, peers, tries } = makePlatform("open", refusal)
        const connection = yield* connect()
        const { fiber } = yield* collect(connection)
        peers[0]!.drop()
        yield* TestClock.adjust("1 hour")
        expect(yield* Effect.flip(Fiber.join(fiber))).toMatchObject({ statusCode: refusal.statusCode })
        expect(yield* stateOf(connection)).toBe("closed")
        expect(tries).toHaveLength(2)
      })
    )
  }

  it.scoped("fails at a frame that is too long, which would only come again", () =>
    Effect.gen(function* () {
      const { connect, peers, tries } = makePlatform("open")
      const connection = yield* connect()
      const { fiber } = yield* collect(connection)
      peers[0]!.drop(true)
      expect(yield* Effect.flip(Fiber.join(fiber))).toMatchObject({ reason: "too_large" })
      expect(tries).toHaveLength(1)
    })
  )

  it.scoped("keeps retrying for hours, with waits of at most ten seconds", () =>
    Effect.gen(function* () {
      const away = [failure({}), failure({ reason: "circuit_open" }), failure({ reason: "status", statusCode: 503 })]
      const down = Array.from({ length: 200 }, (_, i) => away[i % 3]!)
      const { connect, peers, tries } = makePlatform("open", ...down, "open")
      const connection = yield* connect()
      yield* collect(connection)
      peers[0]!.drop()
      yield* TestClock.adjust("10 seconds")
      const early = tries.length
      expect(early).toBeGreaterThan(3)
      expect(early).toBeLessThan(40)
      for (let i = 0; peers.length < 2 && i < 400; i++) yield* TestClock.adjust("5 seconds")
      expect(peers).toHaveLength(2)
      expect(tries).toHaveLength(202)
      expect(yield* stateOf(connection)).toBe("connected")
    })
  )

  it.scoped("keeps its waits while connections drop at once, and resets them after a good one", () =>
    Effect.gen(function* () {
      const { connect, peers, tries } = makePlatform("open")
      yield* Effect.flatMap(connect(), collect)
      for (let i = 0; i < 150; i++) {
        peers.at(-1)!.drop()
        yield* TestClock.adjust("200 millis")
      }
      // In 30 s, by waits of up to 10 s; without them there would be one each time.
      expect(tries.length).toBeLessThan(40)
      yield* TestClock.adjust("20 seconds")
      const before = peers.length
      peers.at(-1)!.emit({ type: "a", id: "e1" })
      peers.at(-1)!.drop()
      yield* TestClock.adjust("200 millis")
      expect(peers).toHaveLength(before + 1)
    })
  )

  it.effect("fails where the first connection does", () =>
    Effect.gen(function* () {
      const { connect } = makePlatform(gone)
      expect(yield* Effect.flip(Effect.scoped(connect()))).toMatchObject({ statusCode: 404 })
    })
  )

  it.scoped("lets a frame wait for the connection, fifteen seconds at most", () =>
    Effect.gen(function* () {
      const { connect, peers } = makePlatform("open", failure({}), failure({}), "open", failure({}))
      const connection = yield* connect()
      yield* collect(connection)
      peers[0]!.drop()
      const sending = yield* Effect.fork(connection.send(message))
      yield* TestClock.adjust("2 seconds")
      yield* Fiber.join(sending)
      expect(peers[1]!.sent).toHaveLength(1)
      peers[1]!.drop()
      const hopeless = yield* Effect.fork(Effect.flip(connection.send(message)))
      yield* TestClock.adjust("14999 millis")
      expect(yield* Fiber.poll(hopeless)).toEqual(Option.none())
      yield* TestClock.adjust("1 millis")
      expect(yield* Fiber.join(hopeless)).toMatchObject({ reason: "timeout" })
    })
  )

  it.scoped("sends each message once and in order, and reports those that may be lost", () =>
    Effect.gen(function* () {
      const { connect, peers } = makePlatform("open")
      const connection = yield* connect()
      const heard: Array<InstanceConnection.Received> = []
      const hear: Effect.Effect<void, UpstreamFailure> = Effect.flatMap(connection.take, ([values, isOver]) => {
        heard.push(...values)
        return isOver ? Effect.void : hear
      })
      yield* Effect.fork(hear)
      const send = (turnId: string) => connection.send({ type: "message", content: turnId, turnId })
      const turnsOf = (peer: Peer | undefined) =>
        peer?.sent.map(text => (JSON.parse(text) as { turnId: string }).turnId)
      yield* send("read")
      peers[0]!.read()
      yield* TestClock.adjust(0)
      peers[0]!.deafen()
      yield* send("lost")
      yield* connection.send({ type: "interrupt", turnId: "read" })
      peers[0]!.emit({ type: "a", id: "e1" })
      peers[0]!.drop()
      const sending = yield* Effect.forEach(["b", "c", "d"], turnId => Effect.fork(send(turnId)))
      yield* TestClock.adjust("2 seconds")
      yield* Effect.forEach(sending, Fiber.join)
      expect(turnsOf(peers[0])).toEqual(["read", "lost", "read"])
      expect(turnsOf(peers[1])).toEqual(["b", "c", "d"])
      // It comes behind what was heard before the loss: that may have said that the message arrived.
      expect(heard).toMatchObject([{ type: "a" }, new InstanceConnection.Undelivered(["lost"])])
    })
  )

  it.scoped("does not send what its sender takes back, and keeps to its time wherever it is called", () =>
    Effect.gen(function* () {
      const { connect, peers } = makePlatform("open", failure({}), failure({}), failure({}), "open")
      const connection = yield* connect()
      yield* collect(connection)
      peers[0]!.drop()
      const claimed: Array<boolean> = []
      const claim = () => {
        claimed.push(true)
        return false
      }
      const hopeless = yield* Effect.fork(
        Effect.uninterruptible(Effect.exit(connection.send(message, { timeout: 10 })))
      )
      yield* TestClock.adjust("10 millis")
      expect(yield* Fiber.join(hopeless)).toMatchObject({ cause: { error: { reason: "timeout" } } })
      const left = yield* Effect.fork(connection.send(message))
      yield* Effect.yieldNow()
      yield* Fiber.interrupt(left)
      const withdrawn = yield* Effect.fork(connection.send(message, { claim }))
      yield* TestClock.adjust("10 seconds")
      yield* Fiber.join(withdrawn)
      yield* connection.ready
      expect(claimed).toEqual([true])
      expect(peers[1]!.sent).toEqual([])
      yield* connection.send(message)
      yield* TestClock.adjust(0)
      expect(peers[1]!.sent).toHaveLength(1)
    })
  )

  it.scoped("gives up a silent connection, but not one that answers pings", () =>
    Effect.gen(function* () {
      const { connect, peers } = makePlatform("open")
      const connection = yield* connect()
      yield* collect(connection)
      peers[0]!.answerPings()
      yield* TestClock.adjust("10 minutes")
      expect(peers).toHaveLength(1)
      expect(peers[0]!.pings()).toBeGreaterThan(10)
      peers[0]!.drop()
      yield* TestClock.adjust("1 second")
      expect(peers).toHaveLength(2)
      yield* TestClock.adjust("39 seconds")
      expect(peers).toHaveLength(2)
      yield* TestClock.adjust("10 seconds")
      expect(peers).toHaveLength(3)
      expect(peers[1]!.isReleased()).toBe(true)
    })
  )

  it.scoped("reads no more than a bounded number of events ahead, and takes a busy consumer for no dead platform", () =>
    Effect.gen(function* () {
      const { connect, peers } = makePlatform("open")
      const connection = yield* connect()
      peers[0]!.emit(...Array.from({ length: 1000 }, (_, i) => ({ type: "a", id: `e${i}` })))
      yield* TestClock.adjust("1 hour")
      expect(peers).toHaveLength(1)
      expect(peers[0]!.waiting()).toBeGreaterThan(1000 - 70)
      const { ids } = yield* collect(connection)
      yield* TestClock.adjust(0)
      expect(yield* ids).toEqual(Array.from({ length: 1000 }, (_, i) => `e${i}`))
    })
  )

  it.scoped("gives up a silent connection after one that was given up while its event waited for room", () =>
    Effect.gen(function* () {
      const { connect, peers } = makePlatform("open")
      yield* connect()
      peers[0]!.emit(...Array.from({ length: 64 }, (_, i) => ({ type: "a", id: `e${i}` })))
      peers[0]!.emitTooLate({ type: "a", id: "late" })
      yield* TestClock.adjust("1 minute")
      yield* TestClock.adjust("10 seconds")
      expect(peers.map(({ after }) => after).slice(0, 2)).toEqual([undefined, "e63"])
      yield* TestClock.adjust("1 minute")
      expect(peers[1]!.pings()).toBe(1)
      expect(peers[1]!.isReleased()).toBe(true)
    })
  )

  it.live("resumes after the last event that it has delivered, wherever a connection was closed", () =>
    Effect.promise(() =>
      fc.assert(
        fc.asyncProperty(Interleaving.interleavings, async interleaving => {
          const program = Effect.gen(function* () {
            const { connect, peers } = makePlatform("open")
            const { ids } = yield* Effect.flatMap(connect("e0"), collect)
            peers[0]!.emitTooLate({ type: "a", id: "late" })
            yield* TestClock.adjust("1 minute")
            return { after: peers[1]?.after, delivered: yield* ids }
          })
          const { after, delivered } = await Effect.runPromise(
            Effect.provide(
              Interleaving.run(Effect.scoped(program), interleaving).pipe(Logger.withMinimumLogLevel(LogLevel.None)),
              TestContext.TestContext
            )
          )
          expect(["e0", ...delivered].at(-1)).toBe(after)
        }),
        { numRuns: 100 * Number(process.env.SOAK ?? 1) }
      )
    )
  )

  it.live("carries all events, however little the consumer and the reader do at a time", () =>
    Effect.promise(() =>
      fc.assert(
        fc.asyncProperty(Interleaving.interleavings, async interleaving => {
          const program = Effect.gen(function* () {
            const { connect, peers } = makePlatform("open")
            const { fiber, ids } = yield* Effect.flatMap(connect(), collect)
            const events = Array.from({ length: 200 }, (_, i) => ({ type: "a", id: `e${i}` }))
            peers[0]!.emit(...events, { type: "instance.stopped" })
            peers[0]!.drop()
            yield* Fiber.join(fiber)
            return yield* ids
          })
          const expected = [...Array.from({ length: 200 }, (_, i) => `e${i}`), undefined]
          expect(await Interleaving.endOf(Effect.scoped(program), interleaving)).toEqual(Exit.succeed(expected))
        }),
        { numRuns: 50 * Number(process.env.SOAK ?? 1) }
      )
    )
  )

  it.scoped("skips frames that are no events", () =>
    Effect.gen(function* () {
      const { connect, peers } = makePlatform("open")
      const connection = yield* connect()
      const { ids } = yield* collect(connection)
      peers[0]!.emit("{", "[]", { type: "" }, { id: "no type" }, { type: "a", id: "e1" })
      yield* TestClock.adjust(0)
      expect(yield* ids).toEqual(["e1"])
    })
  )

  it.effect("lets everything go with its scope, and says so to its watchers", () =>
    Effect.gen(function* () {
      const { connect, peers, tries } = makePlatform("open")
      const scope = yield* Scope.make()
      const connection = yield* Scope.extend(connect(), scope)
      const { fiber } = yield* collect(connection)
      const states = yield* watch(connection)
      yield* Scope.close(scope, Exit.void)
      yield* Fiber.join(fiber)
      expect(yield* states).toEqual(["connected", "closed"])
      expect(peers[0]!.isReleased()).toBe(true)
      yield* TestClock.adjust("1 hour")
      expect(tries).toHaveLength(1)
    })
  )

  it.effect("an interrupted dial leaves nothing behind", () =>
    Effect.gen(function* () {
      const released = yield* Deferred.make<void>()
      const dial = () =>
        Effect.zipRight(
          Effect.acquireRelease(Effect.void, () => Deferred.succeed(released, undefined)),
          Effect.never
        )
      const fiber = yield* Effect.fork(
        Effect.scoped(InstanceConnection.make({ dial, after: undefined, instanceId: "i" }))
      )
      yield* Effect.yieldNow()
      yield* Fiber.interrupt(fiber)
      expect(yield* Deferred.isDone(released)).toBe(true)
    })
  )
})
