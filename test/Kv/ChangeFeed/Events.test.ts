import { describe, expect, it } from "@effect/vitest"
import { Effect, Fiber, Queue, Stream, TestClock } from "effect"
import { EventSource } from "eventsource"
import { DrainingSignal } from "../../../src/Http/DrainingSignal.ts"
import { ChangeFeed } from "../../../src/Kv/ChangeFeed.ts"
import { check, epochNow, layer, Probe, put, query, serve, until, untilFollowers } from "./Harness.ts"

const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString()

/** Takes a stream of events block by block; `undefined` is its end. */
const follow = (after: number, tenant = "", limit = 100, epoch?: string) =>
  Effect.gen(function* () {
    const feed = yield* ChangeFeed
    const events = yield* feed.events(query(after, tenant, limit, epoch))
    const blocks = yield* Queue.unbounded<string | undefined>()
    yield* Effect.forkScoped(
      Effect.zipRight(
        Stream.runForEach(events, bytes => Queue.offer(blocks, text(bytes))),
        Queue.offer(blocks, undefined)
      )
    )
    // A client that loses the connection before the first event also knows the epoch and its position.
    expect(yield* Queue.take(blocks)).toMatch(/^retry: 1000\n: following the change log\nid: \d+@[0-9a-f]+\n\n$/)
    return blocks
  })

describe("ChangeFeed.events", () => {
  check("sends each change as an event with its seq and the epoch as id", function* () {
    yield* put("a", { text: "line\nbreak\u2028" })
    const epoch = yield* epochNow
    const blocks = yield* follow(0)
    const [id, data] = (yield* Queue.take(blocks))!.split("\ndata: ")
    expect(id).toBe(`id: 1@${epoch}`)
    expect(data).toMatch(/^[^\n]*\n\n$/)
    expect(JSON.parse(data!)).toMatchObject({
      seq: 1,
      value: { text: "line\nbreak\u2028" }
    })
    yield* put("a", 2, 3)
    expect((yield* Queue.take(blocks))!.match(/^id: .*$/gm)).toEqual([`id: 2@${epoch}`, `id: 3@${epoch}`])
  })

  check("sends keep-alives, which advance a reader of one tenant", function* () {
    const epoch = yield* epochNow
    const blocks = yield* follow(0, "b")
    yield* put("a", 1, 2, 3)
    yield* TestClock.adjust("14 seconds")
    expect(yield* Queue.size(blocks)).toBe(0)
    yield* TestClock.adjust("1 seconds")
    expect(yield* Queue.take(blocks)).toBe(`: keep-alive\nid: 3@${epoch}\n\n`)
    yield* TestClock.adjust("15 seconds")
    expect(yield* Queue.take(blocks)).toBe(`: keep-alive\nid: 3@${epoch}\n\n`)
    yield* put("b", 4)
    expect(yield* Queue.take(blocks)).toMatch(/^id: 4@/)
  })

  check("reports a log that ends before `after`, and continues from its end", function* () {
    yield* put("a", 1, 2)
    const epoch = yield* epochNow
    const blocks = yield* follow(99)
    const event = `event: reset\nid: 2@${epoch}\ndata: {"lastSeq":2,"epoch":"${epoch}"}\n\n`
    expect(yield* Queue.take(blocks)).toBe(event)
    yield* put("a", 3)
    expect(yield* Queue.take(blocks)).toMatch(/^id: 3@/)
  })

  for (const end of [1, 5]) {
    check(`notifies a reader that the log was replaced by one that ends at ${end}`, function* () {
      const probe = yield* Probe
      yield* put("a", 1, 2, 3)
      const [given, none] = [yield* follow(3, "", 100, yield* epochNow), yield* follow(3, "b")]
      yield* probe.restore
      yield* put("a", ...Array.from({ length: end }, (_, index) => index))
      yield* TestClock.adjust("30 seconds")
      const epoch = yield* epochNow
      for (const blocks of [given, none]) {
        const event = `event: reset\nid: ${end}@${epoch}\ndata: {"lastSeq":${end},"epoch":"${epoch}"}\n\n`
        const all = [...(yield* Queue.takeAll(blocks))]
        expect(all.filter(block => block?.includes("data:"))).toEqual([event])
      }
      yield* put("b", 6)
      for (const blocks of [given, none]) expect(yield* Queue.take(blocks)).toMatch(new RegExp(`^id: ${end + 1}@`))
    })
  }

  check("refuses a reader with the epoch of another log, also if its history is trimmed", function* () {
    const probe = yield* Probe
    yield* put("a", 1, 2, 3)
    const epoch = yield* epochNow
    for (const after of [0, 3, 99]) {
      expect(yield* Effect.flip(follow(after, "", 100, "other"))).toMatchObject({ _tag: "LogReplaced", epoch })
    }
    probe.trimmedSeq = 2
    expect(yield* Effect.flip(follow(0, "", 100, "other"))).toMatchObject({ _tag: "LogReplaced", epoch })
    expect(yield* Effect.flip(follow(0, "", 100, epoch))).toMatchObject({ _tag: "HistoryTrimmed" })
    yield* follow(3, "", 100, epoch)
  })

  check("refuses a reader with a trimmed history, and ends when it is trimmed later", function* () {
    const probe = yield* Probe
    yield* put("a", 1, 2, 3)
    const blocks = yield* follow(3)
    probe.trimmedSeq = 5
    expect(yield* Effect.flip(follow(0))).toMatchObject({ _tag: "HistoryTrimmed", trimmedSeq: 5 })
    yield* put("a", 4)
    expect(yield* Queue.take(blocks)).toBeUndefined()
  })

  check("ends when the service drains, and does not start again", function* () {
    const draining = yield* DrainingSignal
    const blocks = yield* follow(0)
    yield* untilFollowers(1)
    yield* draining.begin
    expect(yield* Queue.take(blocks)).toBeUndefined()
    yield* untilFollowers(0)
    expect(yield* Effect.flip(follow(0))).toMatchObject({ _tag: "FeedBusy" })
  })

  check(
    "limits the number of streams",
    function* () {
      const feed = yield* ChangeFeed
      const [one, two] = yield* Effect.all([feed.events(query()), feed.events(query())])
      const first = yield* Effect.fork(Stream.runDrain(one))
      yield* untilFollowers(1)
      expect(yield* Effect.flip(feed.events(query()))).toMatchObject({ _tag: "FeedBusy" })
      expect(yield* Stream.runCount(two)).toBe(1)
      yield* Fiber.interrupt(first)
      yield* untilFollowers(0)
    },
    { followers: 1 }
  )

  check("reads only as fast as the client", function* () {
    const probe = yield* Probe
    const feed = yield* ChangeFeed
    yield* put("a", ...Array.from({ length: 50 }, (_, i) => i))
    const pull = yield* Stream.toPull(yield* feed.events(query(0, "", 1)))
    yield* Effect.orDie(Effect.flip(Effect.flip(pull)))
    expect(probe.reads).toBe(1)
    yield* Effect.orDie(Effect.flip(Effect.flip(pull)))
    yield* Effect.orDie(Effect.flip(Effect.flip(pull)))
    expect(probe.reads).toBe(2)
  })

  it.live("a browser's EventSource resumes where it was cut off", () =>
    Effect.gen(function* () {
      const served = yield* serve
      const epoch = yield* epochNow
      const seen: Array<number> = []
      yield* Effect.acquireRelease(
        Effect.sync(() => {
          const source = new EventSource(`http://127.0.0.1:${served.port}/stream?tenant=a`)
          source.addEventListener("message", event => {
            const { seq } = JSON.parse(event.data) as { readonly seq: number }
            expect(event.lastEventId).toBe(`${seq}@${epoch}`)
            seen.push(seq)
          })
          return source
        }),
        source => Effect.sync(() => source.close())
      )
      yield* put("a", 1, 2)
      yield* until(() => seen.length === 2)
      served.sockets[0]!.destroy()
      yield* untilFollowers(0)
      yield* put("b", 3)
      yield* put("a", 4, 5)
      yield* until(() => seen.length === 4)
      yield* put("a", 6)
      yield* until(() => seen.length === 5)
      expect(seen).toEqual([1, 2, 4, 5, 6])
    }).pipe(Effect.scoped, Effect.provide(layer()))
  )
})
