/** Conversations and parts of histories over the socket, on every backend, whatever is left of their checkpoints. */
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Layer, Option } from "effect"
import * as fc from "fast-check"
import type { Conversation } from "../../../src/Client/Conversation/Conversation.ts"
import * as Fold from "../../../src/Client/Conversation/Fold.ts"
import type { SessionEvent } from "../../../src/Client/SessionModel.ts"
import { checkpointOf } from "../../../src/Gateway/Conversations.ts"
import { conversationBytes } from "../../../src/Gateway/Protocol/Limits.ts"
import type { AnswerOf } from "../../../src/Gateway/Protocol.ts"
import * as EventsInMemory from "../../../src/Gateway/SessionEvents/Memory.ts"
import * as Retention from "../../../src/Gateway/SessionEvents/Retention.ts"
import {
  type Checkpoint,
  type Retention as Limits,
  SessionEvents,
  SessionUnreadable
} from "../../../src/Gateway/SessionEvents.ts"
import { conversationFrames } from "../../../src/Gateway/Socket/ConversationFrames.ts"
import { StoreUnavailable } from "../../../src/Kv/Store.ts"
import * as Memory from "../../../src/Storage/Memory.ts"
import * as Sqlite from "../../../src/Storage/Sqlite/SessionEvents.ts"
import { anyEvents, numbered, usualEvents } from "../../Client/Conversation/Sessions.ts"
import { emptiedNode } from "../../postgres/Databases.ts"
import { quiet } from "../../postgres/Live.ts"
import { reasonToSkip } from "../../postgres/Server.ts"
import { onlyLong, times } from "../../Scale.ts"
import { temporaryDirectory } from "../../TemporaryDirectory.ts"
import { type Client, codeOf, completeTurn, connect, createSession, live, make } from "./Fixture.ts"

type Events = ReadonlyArray<SessionEvent>
type Port = Context.Tag.Service<SessionEvents>
type Backend = (retention: Limits) => Layer.Layer<SessionEvents, unknown>

const backends: ReadonlyArray<readonly [string, Backend]> = [
  ["memory", EventsInMemory.layer],
  [
    "SQLite",
    retention =>
      Layer.unwrapScoped(
        Effect.map(temporaryDirectory, directory => Sqlite.layer({ directory, writer: "inline", retention }))
      )
  ],
  ...(reasonToSkip === undefined
    ? ([["PostgreSQL", retention => emptiedNode({ retention })]] as const satisfies ReadonlyArray<
        readonly [string, Backend]
      >)
    : [])
]

const keyOf = (sessionId: string): string => `dev/${sessionId}`

/** What is stored of sessions, with other members. */
const changed = (backend: Layer.Layer<SessionEvents, unknown>, change: (port: Port) => Partial<Port>) =>
  Layer.merge(
    Memory.layer,
    Layer.map(backend, context => {
      const port = Context.get(context, SessionEvents)
      return Context.add(context, SessionEvents, { ...port, ...change(port) })
    })
  )

/** The requests of one connection: a client may send 100 messages a second. */
const perConnection = 50

/** A gateway over sessions with histories, and a client of it. */
const over = (
  histories: ReadonlyArray<Events>,
  backend: Layer.Layer<SessionEvents, unknown>,
  change: (port: Port) => Partial<Port> = () => ({})
) =>
  Effect.gen(function* () {
    const { start, stored } = yield* make({ stored: changed(backend, change) })
    const first = yield* start
    const ids: Array<string> = []
    while (ids.length < histories.length) {
      const creator = yield* connect(first.url)
      const count = Math.min(perConnection, histories.length - ids.length)
      ids.push(...(yield* Effect.forEach(Array(count).keys(), () => createSession(creator))))
    }
    yield* first.stop
    const port = Context.get(stored, SessionEvents)
    const epochs = yield* Effect.forEach(histories, (events, index) =>
      Effect.gen(function* () {
        const session = keyOf(ids[index]!)
        const { epoch } = yield* port.open(session, "e")
        const texts = events.map(event => JSON.stringify(event))
        yield* port.append({ session, epoch, after: 0, timestamp: Date.now(), texts, recoveryState: null })
        yield* port.release(session)
        return epoch
      })
    )
    const gateway = yield* start
    return { client: yield* connect(gateway.url), epochs, ids, port, url: gateway.url }
  })

const framesOf = (client: Client, sessionId: string) =>
  client.frames.filter(
    (frame): frame is AnswerOf<"conversation"> => frame.type === "conversation" && frame.sessionId === sessionId
  )

/** Subscribes, and waits for the conversation. */
const conversationOf = (client: Client, sessionId: string, untilSeq?: number) =>
  Effect.gen(function* () {
    const until = untilSeq === undefined ? {} : { untilSeq }
    const subscribed = yield* client.get("subscribed", { type: "subscribe", sessionId, fold: true, ...until })
    yield* client.until(frame => frame.type === "conversation" && frame.sessionId === sessionId && frame.last)
    const frames = framesOf(client, sessionId)
    assert.deepStrictEqual(
      frames.map(({ index }) => index),
      frames.map((_, index) => index)
    )
    assert.lengthOf(new Set(frames.map(({ epoch, seq }) => `${epoch} ${seq}`)), 1)
    const text = frames.map(({ text }) => text).join("")
    return { subscribed, frames, text, conversation: JSON.parse(text) as Conversation }
  })

const foldOf = (events: Events, from: Conversation, trimmedSeq = 0): Conversation => {
  const fold = Fold.resume(JSON.parse(JSON.stringify(from)))
  Fold.trim(fold, trimmedSeq)
  for (const event of events) Fold.add(fold, event)
  return JSON.parse(JSON.stringify(fold.conversation)) as Conversation
}

/** A checkpoint of the first events. */
const checkpointAt = (events: Events, cut: number, epoch: string): Checkpoint => {
  const conversation = foldOf(events.slice(0, cut), Fold.empty(epoch))
  return checkpointOf({ epoch, seq: conversation.seq, text: JSON.stringify(conversation) })
}

interface State {
  readonly name: string
  readonly of: (events: Events, epoch: string) => Checkpoint | undefined
}

/** What may be in the place of a checkpoint. `at` is a fraction of the events or of the text. */
const states = (at: number): ReadonlyArray<State> => {
  const cutOf = (events: Events) => Math.round(at * events.length)
  const valid = (events: Events, epoch: string) => checkpointAt(events, cutOf(events), epoch)
  const damaged = (damage: (text: string, at: number) => string) => (events: Events, epoch: string) => {
    const { text, ...rest } = valid(events, epoch)
    return { ...rest, text: damage(text, Math.floor(at * text.length)) }
  }
  return [
    { name: "absent", of: () => undefined },
    { name: "present", of: valid },
    { name: "at the end", of: (events, epoch) => checkpointAt(events, events.length, epoch) },
    { name: "of another epoch", of: (events, epoch) => ({ ...checkpointAt(events, events.length, "other"), epoch }) },
    { name: "with another epoch", of: (events, epoch) => ({ ...valid(events, epoch), epoch: "other" }) },
    { name: "with another number", of: (events, epoch) => ({ ...valid(events, epoch), seq: events.length + 1 }) },
    {
      name: "ahead of the history",
      of: (events, epoch) =>
        checkpointAt(
          [...events, ...numbered([{ type: "turn_started", turnId: "x" }], events.length)],
          events.length + 1,
          epoch
        )
    },
    { name: "cut off", of: damaged((text, at) => text.slice(0, at)) },
    { name: "changed", of: damaged((text, at) => `${text.slice(0, at)}!${text.slice(at + 1)}`) },
    { name: "longer", of: damaged(text => `${text} `) },
    { name: "of another version", of: damaged(text => `0${text.slice(1)}`) },
    { name: "something else", of: damaged(() => "null") }
  ]
}

const sampled = (sessions: fc.Arbitrary<Events>, count: number) =>
  fc.sample(fc.tuple(sessions, fc.double({ min: 0, max: 1, noNaN: true })), { numRuns: count, seed: 7 })

for (const [name, backend] of backends) {
  describe(`Conversations over the socket, stored in ${name}`, () => {
    const ample = () => backend(Retention.defaults)
    // What a conversation is made of comes from the port, whose backends have a suite of their own.
    const folds = name === "memory" ? it.scopedLive : onlyLong(it.scopedLive)

    folds("are the folds of all events, whatever there is in the place of a checkpoint", () =>
      Effect.gen(function* () {
        const samples = [...sampled(anyEvents, times(6)), ...sampled(usualEvents, times(6))]
        const cases = samples.flatMap(([events, at]) => states(at).map(state => ({ events, state })))
        const checkpoints = new Map<string, Checkpoint | undefined>()
        const { epochs, ids, ...gateway } = yield* over(
          cases.map(({ events }) => events),
          ample(),
          () => ({ checkpoint: session => Effect.sync(() => Option.fromNullable(checkpoints.get(session))) })
        )
        let client = gateway.client
        for (const [index, { events, state }] of cases.entries()) {
          if (index % perConnection === 0) client = yield* connect(gateway.url)
          const [epoch, id] = [epochs[index]!, ids[index]!]
          checkpoints.set(keyOf(id), state.of(events, epoch))
          const { conversation, subscribed } = yield* conversationOf(client, id, 0)
          assert.deepStrictEqual(conversation, foldOf(events, Fold.empty(epoch)), `a checkpoint that is ${state.name}`)
          assert.strictEqual(subscribed.headSeq, events.length)
          yield* client.until(frame => frame.type === "subscription_ended" && frame.sessionId === id)
          assert.deepStrictEqual(client.events(), [])
        }
      }).pipe(Effect.provide(quiet))
    )

    folds("of a trimmed history are the folds of what is kept, with what a checkpoint has of open messages", () =>
      Effect.gen(function* () {
        const samples = [...sampled(anyEvents, times(24)), ...sampled(usualEvents, times(24))]
        const kept = 10
        const checkpoints = new Map<string, Checkpoint | undefined>()
        const { epochs, ids, ...gateway } = yield* over(
          samples.map(([events]) => events),
          backend({ events: kept, bytes: 1e9 }),
          () => ({ checkpoint: session => Effect.sync(() => Option.fromNullable(checkpoints.get(session))) })
        )
        let client = gateway.client
        for (const [index, [events, at]] of samples.entries()) {
          if (index % perConnection === 0) client = yield* connect(gateway.url)
          const [epoch, id] = [epochs[index]!, ids[index]!]
          const cut = Math.round(at * events.length)
          const trimmedSeq = Math.max(0, events.length - kept)
          checkpoints.set(keyOf(id), checkpointAt(events, cut, epoch))
          const { conversation } = yield* conversationOf(client, id, 0)
          const from = foldOf(events.slice(0, cut), Fold.empty(epoch))
          // Events between the checkpoint and those that are kept are missing.
          const expected =
            cut < trimmedSeq
              ? foldOf(events.slice(trimmedSeq), Fold.empty(epoch, trimmedSeq))
              : foldOf(events.slice(cut), from, trimmedSeq)
          assert.deepStrictEqual(conversation, expected)
          yield* client.until(frame => frame.type === "subscription_ended" && frame.sessionId === id)
        }
      }).pipe(Effect.provide(quiet))
    )

    it.scopedLive("are followed by the events after them, and read again from a checkpoint", () =>
      Effect.gen(function* () {
        const bodies = Array.from({ length: 700 }, (_, index) => ({ type: "text_delta", text: `${index} ` }) as const)
        const reads: Array<number> = []
        const { client, ids, port, url } = yield* over([numbered(bodies)], ample(), ({ read }) => ({
          read: (session, after, limit) => {
            reads.push(after)
            return read(session, after, limit)
          }
        }))
        const id = ids[0]!
        const first = yield* conversationOf(client, id)
        assert.strictEqual(first.conversation.seq, 700)
        yield* completeTurn(client, id, "hello")
        assert.deepStrictEqual(
          client.events(id).map(({ seq }) => seq),
          client.events(id).map((_, index) => 701 + index)
        )
        // It is stored in the background.
        const stored = yield* Effect.repeat(port.checkpoint(keyOf(id)), { until: Option.isSome })
        assert.deepInclude(Option.getOrThrow(stored), { seq: 700 })
        reads.length = 0
        const again = yield* conversationOf(yield* connect(url), id)
        assert.isAtLeast(reads[0]!, 700)
        assert.deepStrictEqual(again.conversation, foldOf(client.events(id) as unknown as Events, first.conversation))
      }).pipe(Effect.provide(quiet))
    )

    it.scopedLive("parts of a history are the events that were asked for, and do not end a subscription", () =>
      Effect.gen(function* () {
        const count = 40
        const kept = 30
        const bodies = Array.from({ length: count }, () => ({ type: "text_delta", text: "x" }) as const)
        const { client, ids, url } = yield* over([numbered(bodies)], backend({ events: kept, bytes: 1e9 }))
        const sessionId = ids[0]!
        const trimmedSeq = count - kept
        yield* client.get("subscribed", { type: "subscribe", sessionId, afterSeq: count })
        const number = fc.integer({ min: 0, max: count + 5 })
        const requests = fc.sample(fc.record({ beforeSeq: number, limit: fc.integer({ min: 1, max: count + 5 }) }), {
          numRuns: times(60),
          seed: 7
        })
        for (const request of [...requests, { beforeSeq: 0 }, { beforeSeq: 1_000_000 }]) {
          const before = client.frames.length
          const answer = yield* client.get("subscribed", { type: "subscribe", sessionId, ...request })
          yield* client.until(frame => frame.type === "subscription_ended" && frame.id === answer.id)
          const received = client.frames.slice(before).flatMap(frame => ("traceId" in frame ? [frame.seq] : []))
          const until = Math.min(Math.max(0, request.beforeSeq - 1), count)
          const after = Math.max(0, until - ("limit" in request ? request.limit : 100))
          const expected = bodies.flatMap((_, index) => (index + 1 > after && index + 1 <= until ? [index + 1] : []))
          assert.deepStrictEqual(
            received,
            expected.filter(seq => seq > trimmedSeq),
            JSON.stringify(request)
          )
          assert.strictEqual(answer.recovered, after >= trimmedSeq)
        }
        // The subscription continues.
        yield* completeTurn(client, sessionId, "hello")
        const other = yield* connect(url)
        const older = yield* other.get("subscribed", { type: "subscribe", sessionId, beforeSeq: 40, epoch: "another" })
        assert.isFalse(older.recovered)
        yield* other.until(frame => frame.type === "subscription_ended")
        assert.deepStrictEqual(other.events(), [])
      }).pipe(Effect.provide(quiet))
    )
  })
}

describe("Conversations over the socket", () => {
  const inMemory = () => EventsInMemory.layer()
  const said = (text: string, turnId = "t"): Events =>
    numbered([
      { type: "turn_started", turnId, content: "hi" },
      { type: "text_start", turnId, messageId: "m" },
      { type: "text_delta", turnId, messageId: "m", text },
      { type: "text_end", turnId, messageId: "m" },
      { type: "turn_completed", turnId }
    ])

  it.scopedLive("of 20,000 events come, with the newest events, in few frames", () =>
    Effect.gen(function* () {
      const turns = Array.from({ length: 200 }, (_, number) => {
        const ids = { turnId: `t${number}`, messageId: `m${number}` }
        const deltas = Array.from({ length: 96 }, () => ({ type: "text_delta", ...ids, text: "some words " }) as const)
        const started = { type: "turn_started", turnId: ids.turnId, content: "hello" } as const
        const end = { type: "turn_completed", turnId: ids.turnId } as const
        return [started, { type: "text_start", ...ids } as const, ...deltas, { type: "text_end", ...ids } as const, end]
      })
      const { client, ids } = yield* over([numbered(turns.flat())], EventsInMemory.layer({ events: 1e6, bytes: 1e9 }))
      const sessionId = ids[0]!
      const { conversation } = yield* conversationOf(client, sessionId)
      assert.lengthOf(conversation.messages, 400)
      assert.strictEqual(conversation.seq, 20_000)
      yield* client.get("subscribed", { type: "subscribe", sessionId, beforeSeq: 20_001, limit: 500 })
      yield* client.until(frame => frame.type === "subscription_ended")
      assert.isAtMost(client.frames.length, 1000)
    })
  )

  it.scopedLive("have slices of limited size, without parts of characters", () =>
    Effect.gen(function* () {
      const text = 'aä😀€"\\\n'.repeat(30_000)
      const { client, ids } = yield* over([said(text)], inMemory())
      const { conversation, frames } = yield* conversationOf(client, ids[0]!)
      assert.isAbove(frames.length, 1)
      for (const { text } of frames) {
        assert.isAtMost(Buffer.byteLength(text), conversationBytes)
        assert.isTrue(text.isWellFormed())
      }
      assert.deepStrictEqual(conversation, foldOf(said(text), Fold.empty(conversation.epoch)))
    })
  )

  it("any text is cut into slices that make it again", () => {
    const piece = fc.constantFrom(
      "a".repeat(conversationBytes - 1),
      "ä".repeat(1000),
      "😀".repeat(70_000),
      "😀",
      "x",
      "€"
    )
    fc.assert(
      fc.property(fc.array(piece, { minLength: 1, maxLength: 6 }), pieces => {
        const text = pieces.join("")
        const frames = [...conversationFrames("s", { epoch: "e", seq: 1, text })]
        assert.strictEqual(frames.map(({ text }) => text).join(""), text)
        assert.deepStrictEqual(
          frames.map(({ last }) => last),
          frames.map((_, index) => index === frames.length - 1)
        )
        for (const { text } of frames) {
          assert.isTrue(text.isWellFormed())
          assert.isAtMost(Buffer.byteLength(text), conversationBytes)
        }
      }),
      { numRuns: times(100) }
    )
  })

  it.scopedLive("of the largest size are sent to a client that waits, and delay no other", () =>
    Effect.gen(function* () {
      const part = "x".repeat(1024 * 1024)
      const huge = numbered(
        Array.from({ length: 12 }, (_, index) => said(part, `t${index}`).map(({ seq: _, ...body }) => body)).flat()
      )
      const { client, ids, url } = yield* over([huge, said("small")], inMemory())
      const [large, small] = [ids[0]!, ids[1]!]
      const silent = yield* connect(url)
      silent.socket.pause()
      yield* silent.send(JSON.stringify({ type: "subscribe", id: "1", sessionId: large, fold: true }))
      const { conversation } = yield* conversationOf(client, small)
      assert.strictEqual(conversation.seq, 5)
      const all = yield* conversationOf(client, large)
      assert.isAbove(all.text.length, 7 * 1024 * 1024)
      assert.isAbove(all.conversation.trimmedSeq, 0)
      silent.socket.resume()
      yield* silent.until(frame => frame.type === "conversation" && frame.last)
      assert.strictEqual(
        framesOf(silent, large)
          .map(({ text }) => text)
          .join(""),
        all.text
      )
    })
  )

  it.scopedLive("of a history that cannot be read end the subscription, and one without checkpoints needs none", () =>
    Effect.gen(function* () {
      let isBroken = true
      const away = new SessionUnreadable({ session: "s", reason: "SQLITE_CORRUPT" })
      const { client, ids } = yield* over([said("hello")], inMemory(), ({ read }) => ({
        read: (...place) => Effect.suspend(() => (isBroken ? away : read(...place))),
        checkpoint: () => new StoreUnavailable({ reason: "SQLITE_CORRUPT" }),
        saveCheckpoint: () => new StoreUnavailable({ reason: "SQLITE_CORRUPT" })
      }))
      const sessionId = ids[0]!
      yield* client.get("subscribed", { type: "subscribe", sessionId, fold: true })
      const error = yield* client.until(frame => frame.type === "error" && !("seq" in frame))
      assert.deepInclude(error, { sessionId })
      isBroken = false
      const { conversation } = yield* conversationOf(client, sessionId)
      assert.strictEqual(conversation.seq, 5)
    }).pipe(Effect.provide(quiet))
  )

  live("end at the event that was asked for", function* ({ url }) {
    const client = yield* connect(url)
    const sessionId = yield* createSession(client)
    const first = yield* client.get("subscribed", { type: "subscribe", sessionId, untilSeq: 3 })
    const follower = yield* connect(url)
    yield* follower.get("subscribed", { type: "subscribe", sessionId })
    yield* completeTurn(follower, sessionId, "hello")
    const ended = yield* client.until(frame => frame.type === "subscription_ended")
    assert.deepStrictEqual(ended as unknown, { type: "subscription_ended", id: first.id, sessionId })
    assert.deepStrictEqual(
      client.events().map(({ seq }) => seq),
      [1, 2, 3]
    )
    // At once, where nothing is left.
    const second = yield* client.get("subscribed", { type: "subscribe", sessionId, afterSeq: 3, untilSeq: 3 })
    yield* client.until(frame => frame.type === "subscription_ended" && frame.id === second.id)
    assert.lengthOf(client.events(), 3)
    assert.strictEqual((yield* client.ask({ type: "unsubscribe", sessionId })).type, "unsubscribed")
  })

  live("cannot be asked for in ways that contradict each other", function* ({ url }) {
    const client = yield* connect(url)
    const sessionId = yield* createSession(client)
    for (const members of [
      { fold: true, afterSeq: 0 },
      { beforeSeq: 1, afterSeq: 0 },
      { beforeSeq: 1, untilSeq: 1 },
      { beforeSeq: 1, fold: true },
      { limit: 5 },
      { beforeSeq: 1, limit: 0 },
      { beforeSeq: 1, limit: 1001 },
      { beforeSeq: -1 }
    ]) {
      const answer = yield* client.ask({ type: "subscribe", sessionId, ...members })
      assert.strictEqual(codeOf(answer), "bad_request", JSON.stringify(members))
    }
    assert.strictEqual(codeOf(yield* client.ask({ type: "subscribe", sessionId: "none", fold: true })), "not_found")
  })
})
