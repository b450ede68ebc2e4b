/** The connections of a node for reads of single entries: how many are made, when, and when they end. */
import { expect } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { vi } from "vitest"
import * as Pipeline from "../../../../src/Storage/Postgres/Database/Pipeline.ts"
import { newDatabase } from "../../../postgres/Databases.ts"
import { live, onPostgres, together } from "../../../postgres/Live.ts"
import * as Proxy from "../../../postgres/Proxy.ts"
import { count, limitedRole, one } from "./Fixture.ts"

const make = (url: string) => Pipeline.make({ url: Redacted.make(url), statementTimeout: 10_000 })

/** A read that returns 1. */
const read = (pipeline: Pipeline.Pipeline) => pipeline.run(one)

const asked = Array.from({ length: 60 })

/** The answers of reads that are sent together. */
const readMany = (pipeline: Pipeline.Pipeline) => together(asked, () => Effect.merge(read(pipeline)))

const ones = asked.map(() => 1)

/** The time of checks and pauses passes only by `vi.advanceTimersByTime`. */
const withFakeIntervals = Effect.acquireRelease(
  Effect.sync(() => vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] })),
  () => Effect.sync(() => vi.useRealTimers())
)

onPostgres("Postgres, reads of single entries", () => {
  live("all share the only connection that the server allows, from the first", function* () {
    const admin = yield* newDatabase
    for (let round = 0; round < 20; round++) {
      // Connections that end are counted for a moment, so that each round has its own role.
      const { url } = yield* limitedRole(admin, 1)
      const pipeline = yield* make(url)
      expect(yield* readMany(pipeline)).toEqual(ones)
      expect(yield* readMany(pipeline)).toEqual(ones)
    }
  })

  live("no other connection is made before the first is open", function* () {
    const proxy = yield* Proxy.make(yield* newDatabase)
    const pipeline = yield* make(proxy.url)
    proxy.set("black hole")
    const failures = yield* readMany(pipeline)
    expect(failures).toEqual(asked.map(() => expect.objectContaining({ _tag: "NotSent" })))
    expect(proxy.connections()).toBe(1)
  })

  live(
    "a second connection that was refused is tried again after a pause, and when the server allows it",
    function* () {
      const admin = yield* newDatabase
      const { setLimit, url } = yield* limitedRole(admin, 1)
      const proxy = yield* Proxy.make(url)
      yield* withFakeIntervals
      const pipeline = yield* make(proxy.url)
      expect(yield* readMany(pipeline)).toEqual(ones)
      // The first reads waited for the first connection, and no later read is needed for the second.
      yield* Effect.repeat(Effect.sleep("10 millis"), { until: () => proxy.connections() > 1 })
      for (let round = 0; round < 50; round++) expect(yield* readMany(pipeline)).toEqual(ones)
      expect(proxy.connections()).toBe(2)
      expect(yield* count(admin)).toBe(1)
      yield* setLimit(2)
      const next = Effect.zipLeft(
        readMany(pipeline),
        Effect.sync(() => vi.advanceTimersByTime(100))
      )
      yield* Effect.repeat(Effect.zipRight(next, count(admin)), { until: now => now === 2 })
      expect(yield* readMany(pipeline)).toEqual(ones)
    }
  )

  live("a connection ends after a minute without use, and another is made for the next read", function* () {
    const url = yield* newDatabase
    yield* withFakeIntervals
    const pipeline = yield* make(url)
    expect(yield* read(pipeline)).toBe(1)
    vi.advanceTimersByTime(59_000)
    expect(yield* read(pipeline)).toBe(1)
    vi.advanceTimersByTime(59_000)
    expect(yield* count(url)).toBe(1)
    vi.advanceTimersByTime(2000)
    yield* Effect.repeat(count(url), { until: now => now === 0 })
    expect(yield* read(pipeline)).toBe(1)
  })
})
