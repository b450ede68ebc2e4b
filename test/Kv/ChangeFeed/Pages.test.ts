import { once } from "node:events"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { describe, expect, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, FastCheck as fc, Logger, Runtime } from "effect"
import { WebSocket, WebSocketServer } from "ws"
import * as Direct from "../../../src/base/Direct.ts"
import { JsonText } from "../../../src/base/Json/JsonText.ts"
import { textFrame, textFrames } from "../../../src/Http/WebSocket.ts"
import { encode, type StoredChange } from "../../../src/Kv/Change.ts"
import * as Pages from "../../../src/Kv/ChangeFeed/Pages.ts"
import { Page } from "../../../src/Kv/ChangeFeed/Pages.ts"
import { ChangeLog, type ChangePage, type HistoryTrimmed } from "../../../src/Kv/ChangeLog.ts"
import { StoreUnavailable } from "../../../src/Kv/Store.ts"
import { codePoint } from "../../CodePoint.ts"
import { test } from "../../Tests.ts"
import { quietLog } from "./Harness.ts"

const change = (seq: number, tenant = "a", size = 1): StoredChange => ({
  seq,
  op: "set",
  namespace: `tenant:${tenant}/x`,
  key: `k${seq}`,
  value: JsonText(JSON.stringify("v".repeat(size))),
  version: 1,
  actor: "test",
  timestamp: 0
})

const page = (...changes: ReadonlyArray<StoredChange>): ChangePage => ({
  changes: changes.map(encode),
  lastSeq: changes.at(-1)?.seq ?? 0,
  epoch: "e",
  isComplete: false
})

/** A log whose reads see its state at their start, and answer on demand of the test. */
const slowLog = () => {
  const changes: Array<StoredChange> = []
  const reads: Array<Deferred.Deferred<void, StoreUnavailable | HistoryTrimmed>> = []
  const log = {
    ...quietLog,
    read: ({ after, limit, tenant }: { after: number; limit: number; tenant: string }) =>
      Effect.gen(function* () {
        const found = Page.of(page(...changes)).split({ after, limit, tenant })[0]
        const seen = changes.slice(after, found.lastSeq)
        const gate = yield* Deferred.make<void, StoreUnavailable | HistoryTrimmed>()
        reads.push(gate)
        yield* Deferred.await(gate)
        return { ...page(...seen), lastSeq: found.lastSeq }
      })
  }
  const commit = () => changes.push(change(changes.length + 1))
  return { reads, commit, make: Effect.provideService(Pages.make, ChangeLog, log) }
}

const query = { after: 0, limit: 100, tenant: "" }

const settle = Effect.repeatN(Effect.yieldNow(), 20)

describe("Pages", () => {
  test.scoped("never answers with a read that began before the request, and reads at most twice", function* () {
    const { reads, commit, make } = slowLog()
    const pages = yield* make
    const first = yield* Effect.fork(pages.fresh(query))
    yield* settle
    commit()
    const others = yield* Effect.forkAll(Array.from({ length: 1000 }, () => pages.fresh(query)))
    yield* settle
    expect(reads).toHaveLength(1)
    yield* Deferred.succeed(reads[0]!, undefined)
    yield* settle
    expect(reads).toHaveLength(2)
    yield* Deferred.succeed(reads[1]!, undefined)
    expect((yield* Fiber.join(first)).lastSeq).toBe(0)
    expect((yield* Fiber.join(others)).every(({ lastSeq }) => lastSeq === 1)).toBe(true)
  })

  test.scoped("continues a read if the caller that started it is interrupted", function* () {
    const { reads, commit, make } = slowLog()
    const pages = yield* make
    commit()
    const first = yield* Effect.fork(pages.next(query))
    yield* settle
    const second = yield* Effect.fork(pages.next(query))
    yield* settle
    yield* Fiber.interrupt(first)
    yield* Deferred.succeed(reads[0]!, undefined)
    expect((yield* Fiber.join(second)).count).toBe(1)
    expect(reads).toHaveLength(1)
  })

  test.scoped("reports a failure to all waiters, and caches none", function* () {
    const { reads, commit, make } = slowLog()
    const pages = yield* make
    const both = yield* Effect.forkAll([Effect.flip(pages.next(query)), Effect.flip(pages.next(query))])
    yield* settle
    yield* Deferred.fail(reads[0]!, new StoreUnavailable({ reason: "unavailable" }))
    expect(yield* Fiber.join(both)).toMatchObject([{ reason: "unavailable" }, { reason: "unavailable" }])
    commit()
    const again = yield* Effect.fork(pages.next(query))
    yield* settle
    yield* Deferred.succeed(reads[1]!, undefined)
    expect((yield* Fiber.join(again)).count).toBe(1)
  })

  it.scoped("a reader that throws on its page does not prevent the delivery to others", () =>
    Effect.gen(function* () {
      const { reads, commit, make } = slowLog()
      const pages = yield* make
      const tail = Pages.tail(0)
      commit()
      const runtime = yield* Effect.runtime()
      const received: Array<number> = []
      Direct.run(pages.fresh(tail), Runtime.runFork(runtime), () => {
        throw new Error("a bug of the reader")
      })
      const others = yield* Effect.forkAll([pages.next(tail), pages.next(tail)])
      yield* settle
      Direct.run(pages.next(tail), Runtime.runFork(runtime), exit => {
        if (Exit.isSuccess(exit)) received.push(exit.value.lastSeq)
      })
      yield* Deferred.succeed(reads[0]!, undefined)
      expect((yield* Fiber.join(others)).map(({ lastSeq }) => lastSeq)).toEqual([1, 1])
      expect(received).toEqual([1])
    }).pipe(Effect.provide(Logger.remove(Logger.defaultLogger)))
  )

  test.scoped("caches pages with changes, never an empty one", function* () {
    const { reads, commit, make } = slowLog()
    const pages = yield* make
    const read = Effect.gen(function* () {
      const before = reads.length
      const fiber = yield* Effect.fork(pages.next(query))
      yield* settle
      if (reads.length > before) yield* Deferred.succeed(reads[before]!, undefined)
      return (yield* Fiber.join(fiber)).count
    })
    expect([yield* read, yield* read]).toEqual([0, 0])
    expect(reads).toHaveLength(2)
    commit()
    expect([yield* read, yield* read]).toEqual([1, 1])
    expect(reads).toHaveLength(3)
  })

  test.scoped("stays within its bounds", function* () {
    const size = 1024 * 1024
    let reads = 0
    const pages = yield* Effect.provideService(Pages.make, ChangeLog, {
      ...quietLog,
      read: ({ after }) =>
        Effect.sync(() => {
          reads++
          return page(change(after + 1, "a", size))
        })
    })
    for (let after = 0; after < 20; after++) yield* pages.next({ ...query, after })
    expect(reads).toBe(20)
    yield* pages.next({ ...query, after: 19 })
    expect(reads).toBe(20)
    yield* pages.next({ ...query, after: 0 })
    expect(reads).toBe(21)
  })
})

describe("Page", () => {
  it("splits a reader's changes into parts within its limit that end with the page", () => {
    const whole = Page.of({ ...page(change(1), change(2, "b"), change(3), change(4), change(5, "b")), lastSeq: 7 })
    const parts = (after: number, limit: number, tenant: string) =>
      whole.split({ after, limit, tenant }).map(part => [part.count, part.lastSeq])
    expect(parts(0, 10, "")).toEqual([[5, 7]])
    expect(parts(0, 1, "a")).toEqual([
      [1, 1],
      [1, 3],
      [1, 7]
    ])
    expect(parts(1, 2, "a")).toEqual([[2, 7]])
    expect(parts(5, 2, "")).toEqual([[0, 7]])
    expect(parts(0, 2, "c")).toEqual([[0, 7]])
  })

  it("says of each part whether the log may continue after it", () => {
    for (const isComplete of [false, true]) {
      const whole = Page.of({ ...page(change(1), change(2, "b"), change(3), change(4)), isComplete })
      const more = (limit: number, tenant: string) =>
        whole.split({ after: 0, limit, tenant }).map(({ hasMore }) => hasMore)
      expect(more(10, "")).toEqual([isComplete])
      expect(more(2, "a")).toEqual([true, isComplete])
      expect(more(2, "c")).toEqual([isComplete])
      const { continued } = whole
      expect([continued.hasMore, continued.count, continued.answer]).toEqual([true, 4, whole.answer])
    }
  })
})

/**
 * The messages that a client receives if frames are written under the WebSocket, between others that it writes itself.
 */
const received = (frames: ReadonlyArray<Buffer>): Effect.Effect<ReadonlyArray<string>> =>
  Effect.promise(async () => {
    const sockets = new WebSocketServer({ noServer: true, clientTracking: false, perMessageDeflate: false })
    const server = createServer().on("upgrade", (request, socket, head) =>
      sockets.handleUpgrade(request, socket, head, webSocket => {
        for (const frame of frames) {
          webSocket.ping("between")
          socket.write(frame)
        }
        webSocket.close(1000)
      })
    )
    await once(server.listen(0, "127.0.0.1"), "listening")
    const messages: Array<string> = []
    const client = new WebSocket(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`)
    client.on("message", (data, isBinary) => messages.push(isBinary ? "binary" : String(data)))
    const [code] = await once(client, "close")
    expect(code).toBe(1000)
    server.close()
    return messages
  })

describe("Frame", () => {
  test.live("is decoded to its text, at any length", function* () {
    const lengths = [0, 1, 125, 126, 127, 65_535, 65_536, 200_000]
    const texts = lengths.flatMap(length => ["x".repeat(length), `${"é".repeat(length >> 1)}${"y".repeat(length % 2)}`])
    expect(yield* received(texts.map(textFrame))).toEqual(texts)
    // Several in one write.
    expect(yield* received([textFrames(texts.map(text => Buffer.from(text)))])).toEqual(texts)
    expect(textFrames([])).toHaveLength(0)
  })

  it("has exactly the bytes of its head and its text", () => {
    fc.assert(
      fc.property(fc.string({ unit: codePoint, maxLength: 300 }), text => {
        const frame = textFrame(text)
        const bytes = Buffer.from(text)
        expect(frame[0]).toBe(0x81)
        expect(frame.subarray(frame.length - bytes.length).equals(bytes)).toBe(true)
        expect(frame.length - bytes.length).toBe(bytes.length < 126 ? 2 : 4)
      })
    )
  })
})
