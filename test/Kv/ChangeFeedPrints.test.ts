import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { JsonText } from "../../src/Json/JsonText.ts"
import * as Pages from "../../src/Kv/ChangeFeed/Pages.ts"
import { answerOf } from "../../src/Kv/ChangeFeed/Print.ts"
import { ChangeLog, type PrintedPage } from "../../src/Kv/ChangeLog.ts"
import { StoreUnavailable } from "../../src/Kv/Store.ts"

/** A log of numbers that prints itself, and counts how often it is read. */
const printingLog = () => {
  const state = { end: 3, history: 1, reads: 0, isAway: false, onRead: () => {} }
  const history = Effect.suspend(() =>
    state.isAway ? new StoreUnavailable({ reason: "away" }) : Effect.succeed(state.history)
  )
  const read = ({ after, limit }: { readonly after: number; readonly limit: number }) =>
    Effect.sync((): PrintedPage => {
      state.reads++
      state.onRead()
      const count = Math.max(0, Math.min(limit, state.end - after))
      const changes = Array.from({ length: count }, (_, index) => `${state.history}.${after + index + 1}`)
      return { changes, lastSeq: count === 0 ? state.end : after + count, complete: count === limit }
    })
  const make = Effect.provideService(Pages.make, ChangeLog, {
    read: ({ after, limit }) =>
      Effect.sync(() => {
        const count = Math.max(0, Math.min(limit, state.end - after))
        const changes = Array.from({ length: count }, (_, index) => ({
          seq: after + index + 1,
          op: "set" as const,
          namespace: "n",
          key: "k",
          value: JsonText(String(state.history)),
          version: 1,
          actor: "api",
          timestamp: 0
        }))
        return { changes, lastSeq: count === 0 ? state.end : after + count }
      }),
    printed: { read, history },
    lastSeq: Effect.sync(() => state.end),
    awaitPast: () => Effect.never,
    trim: () => Effect.succeed(0),
    expire: Effect.succeed(0)
  })
  return { make, state }
}

const query = { after: 0, limit: 2, tenant: "" }

describe("polls of a log that prints itself", () => {
  it.effect("read a complete page once, and each other page anew", () =>
    Effect.gen(function* () {
      const { make, state } = printingLog()
      const pages = yield* make
      const full = yield* pages.poll(query)
      expect([answerOf(full), full.changes, full.count]).toEqual(['{"changes":[1.1,1.2],"lastSeq":2}', "[1.1,1.2]", 2])
      expect(yield* pages.poll(query)).toBe(full)
      expect(state.reads).toBe(1)
      expect(answerOf(yield* pages.poll({ ...query, after: 2 }))).toBe('{"changes":[1.3],"lastSeq":3}')
      state.end = 9
      expect(answerOf(yield* pages.poll({ ...query, after: 2 }))).toBe('{"changes":[1.3,1.4],"lastSeq":4}')
      expect(answerOf(yield* pages.poll({ ...query, limit: 3 }))).toBe('{"changes":[1.1,1.2,1.3],"lastSeq":3}')
      expect(pages.end()).toBe(4)
    })
  )

  it.effect("answer nothing from before the history became another", () =>
    Effect.gen(function* () {
      const { make, state } = printingLog()
      const pages = yield* make
      yield* pages.poll(query)
      state.history = 2
      expect((yield* pages.poll(query)).changes).toBe("[2.1,2.2]")
      // It becomes another while a page is read: which of the two the page is of, nobody knows.
      state.history = 3
      state.onRead = () => {
        state.history = 4
      }
      yield* pages.poll(query)
      state.onRead = () => {}
      const reads = state.reads
      yield* pages.poll(query)
      expect(state.reads).toBe(reads + 1)
    })
  )

  it.effect("and followers are told nothing of a history that is no more, though the log outgrew it", () =>
    Effect.gen(function* () {
      const { make, state } = printingLog()
      const pages = yield* make
      const told = (page: { readonly changes: string }) => page.changes.match(/"value":(\d+)/)?.[1]
      expect(told(yield* pages.next(query))).toBe("1")
      state.history = 2
      state.end = 100
      expect(told(yield* pages.next(query))).toBe("2")
    })
  )

  it.effect("fail while the log is away, whatever is kept", () =>
    Effect.gen(function* () {
      const { make, state } = printingLog()
      const pages = yield* make
      yield* pages.poll(query)
      state.isAway = true
      expect(yield* Effect.flip(pages.poll(query))).toMatchObject({ reason: "away" })
      state.isAway = false
      expect((yield* pages.poll(query)).count).toBe(2)
    })
  )

  it.effect("keep no more than the bound", () =>
    Effect.gen(function* () {
      const { make, state } = printingLog()
      state.end = 1000
      const pages = yield* make
      for (let after = 0; after < 200; after++) yield* pages.poll({ ...query, after })
      yield* pages.poll({ ...query, after: 199 })
      expect(state.reads).toBe(200)
      yield* pages.poll(query)
      expect(state.reads).toBe(201)
    })
  )
})
