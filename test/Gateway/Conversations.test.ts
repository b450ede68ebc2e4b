/** Reads of conversations that share their work, and when checkpoints are stored. */
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Fiber, Layer, Option } from "effect"
import * as Conversations from "../../src/Gateway/Conversations.ts"
import type { Session } from "../../src/Gateway/Protocol.ts"
import * as EventsInMemory from "../../src/Gateway/SessionEvents/Memory.ts"
import { type History, SessionEvents } from "../../src/Gateway/SessionEvents.ts"
import { StoreUnavailable } from "../../src/Kv/Store.ts"
import { numbered } from "../Client/Conversation/Sessions.ts"
import { turns } from "../Client/Harness.ts"
import { quiet } from "../postgres/Live.ts"

type Port = Context.Tag.Service<SessionEvents>

const key = "t/s"

const deltas = (count: number, after = 0, text = "word ") =>
  numbered(
    Array.from({ length: count }, () => ({ type: "text_delta", text }) as const),
    after
  )

/** The service over the history of one session. */
const make = (change: (port: Port) => Partial<Port> = () => ({}), retention = { events: 1e6, bytes: 1e9 }) =>
  Effect.gen(function* () {
    const port = Context.get(yield* Layer.build(EventsInMemory.layer(retention)), SessionEvents)
    const changed = Layer.succeed(SessionEvents, { ...port, ...change(port) })
    const context = yield* Layer.build(Layer.provide(Conversations.layer, changed))
    const service = Context.get(context, Conversations.Conversations)
    yield* port.open(key, "e")
    const append = (count: number, text?: string) =>
      Effect.flatMap(Effect.flatten(port.find(key)), ({ headSeq: after }) => {
        const texts = deltas(count, after, text).map(event => JSON.stringify(event))
        return port.append({ session: key, epoch: "e", after, timestamp: 0, texts, recoveryState: null })
      })
    const readOf = ({ epoch, headSeq, trimmedSeq }: History) =>
      service.read({ session: { id: "s", tenant: "t" } as Session, epoch, headSeq, trimmedSeq })
    const read = Effect.flatMap(Effect.flatten(port.find(key)), readOf)
    /** The checkpoint, once what runs in the background has run. */
    const checkpoint = Effect.zipRight(
      Effect.promise(() => turns(20)),
      Effect.map(port.checkpoint(key), Option.getOrUndefined)
    )
    return { port, append, read, readOf, checkpoint }
  })

const begun = Effect.promise(() => turns(20))

describe("Conversations", () => {
  it.scoped("are read once for all who ask at the same time, and again for those who ask later", () =>
    Effect.gen(function* () {
      const gate = yield* Effect.makeLatch(false)
      let reads = 0
      const { append, read } = yield* make(port => ({
        read: (session, after, limit) =>
          Effect.flatMap(port.read(session, after, limit), page => {
            reads++
            return Effect.as(gate.await, page)
          })
      }))
      yield* append(5)
      const same = yield* Effect.forEach([1, 2, 3], () => Effect.fork(read))
      yield* begun
      assert.strictEqual(reads, 1)
      yield* Fiber.interrupt(same[0]!)
      yield* append(1)
      const later = yield* Effect.fork(read)
      yield* begun
      yield* gate.open
      const found = yield* Effect.forEach(same.slice(1), fiber => Fiber.join(fiber))
      assert.deepStrictEqual(
        found.map(({ seq }) => seq),
        [5, 5]
      )
      // It was read before the event.
      assert.strictEqual((yield* Fiber.join(later)).seq, 6)
      assert.strictEqual(reads, 2)
    })
  )

  it.scoped("are stored each 500 events, and later where they are long", () =>
    Effect.gen(function* () {
      const { append, checkpoint, read } = yield* make()
      yield* append(499)
      yield* read
      assert.isUndefined(yield* checkpoint)
      yield* append(1)
      const first = yield* read
      assert.deepStrictEqual(yield* checkpoint, Conversations.checkpointOf(first))
      yield* append(499)
      yield* read
      assert.strictEqual((yield* checkpoint)?.seq, 500)
      yield* append(1)
      yield* read
      assert.strictEqual((yield* checkpoint)?.seq, 1000)
      yield* append(600, "x".repeat(4000))
      yield* read
      assert.strictEqual((yield* checkpoint)?.seq, 1000)
    })
  )

  it.scoped("are stored again after the events were removed that they are made of", () =>
    Effect.gen(function* () {
      const { append, checkpoint, port, read } = yield* make(undefined, { events: 600, bytes: 1e9 })
      yield* append(600)
      yield* read
      yield* port.append({
        ...{ session: key, epoch: "e", after: 600, timestamp: 0, recoveryState: null },
        texts: numbered([{ type: "turn_started", turnId: "t", content: "hi" }], 600).map(event => JSON.stringify(event))
      })
      yield* append(599)
      const { seq, text } = yield* read
      assert.strictEqual(seq, 1200)
      assert.strictEqual(JSON.parse(text).trimmedSeq, 600)
      assert.strictEqual((yield* checkpoint)?.seq, 1200)
    })
  )

  it.scoped("are read although nothing can be stored", () =>
    Effect.gen(function* () {
      const { append, checkpoint, read } = yield* make(() => ({
        saveCheckpoint: () => new StoreUnavailable({ reason: "the disk is full" })
      }))
      yield* append(1000)
      assert.strictEqual((yield* read).seq, 1000)
      assert.isUndefined(yield* checkpoint)
      assert.strictEqual((yield* read).seq, 1000)
    }).pipe(Effect.provide(quiet))
  )

  it.scoped("fail if the history was replaced or removed, or lacks an event", () =>
    Effect.gen(function* () {
      let lacks = 0
      const { append, port, read, readOf } = yield* make(({ read }) => ({
        read: (session, after, limit) =>
          Effect.map(
            read(session, after, limit),
            Option.map(page => ({ ...page, events: page.events.filter(({ seq }) => seq !== lacks) }))
          )
      }))
      yield* append(3)
      for (const seq of [2, 3]) {
        lacks = seq
        assert.strictEqual((yield* Effect.flip(read))._tag, "SessionUnreadable")
      }
      lacks = 0
      const before = yield* Effect.flatten(port.find(key))
      assert.strictEqual((yield* readOf(before)).seq, 3)
      yield* port.renewEpoch(key, "other")
      assert.strictEqual((yield* Effect.flip(readOf(before)))._tag, "StoreUnavailable")
      assert.strictEqual((yield* read).epoch, "other")
      // The store has lost the end of the history.
      assert.strictEqual(
        (yield* Effect.flip(readOf({ ...before, epoch: "other", headSeq: 4 })))._tag,
        "StoreUnavailable"
      )
      yield* port.remove(key)
      assert.strictEqual((yield* Effect.flip(readOf({ ...before, epoch: "other" })))._tag, "StoreUnavailable")
    })
  )
})
