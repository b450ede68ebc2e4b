/** Answers of the platform that are long, odd or never end. */
import { describe, expect, it } from "@effect/vitest"
import { Effect, Either, Fiber, FastCheck as fc, Schema, Stream, TestClock } from "effect"
import { parseWellFormed } from "../../src/base/Json/Parsing.ts"
import * as FileCalls from "../../src/Upstream/AgentPlatform/FileCalls.ts"
import * as PlatformEvent from "../../src/Upstream/PlatformEvent.ts"
import { FileEntry, FileIteration } from "../../src/Upstream/Workspace.ts"
import { times } from "../Scale.ts"
import { test } from "../Tests.ts"
import { finish, withPlatform } from "./Platform.ts"
import * as Stub from "./Stub.ts"

const entries = (count: number) => Array.from({ length: count }, (_, index) => ({ path: `f${index}`, size: index }))

const runs = (count: number) => ({ numRuns: times(count) })

describe("long lists", () => {
  test.live("are read in portions, between which other work runs", function* () {
    let turns = 0
    const others = yield* Effect.fork(
      Effect.forever(
        Effect.async<void>(resume => {
          setImmediate(() => {
            turns++
            resume(Effect.void)
          })
        })
      )
    )
    const list = entries(FileCalls.maxEntries)
    expect(yield* FileCalls.files({ entries: list })).toEqual(list)
    yield* Fiber.interrupt(others)
    expect(turns).toBeGreaterThanOrEqual(FileCalls.maxEntries / 1000 / 2)
  })

  test.effect("are refused beyond a number of entries or bytes, with the number and the limit", function* () {
    const many = Stub.make([Stub.status(200, { entries: entries(10_001) })])
    expect(yield* withPlatform(many, platform => Effect.flip(platform.listFiles("i-1")))).toMatchObject({
      reason: "too_large",
      message: "The agent platform's answer to list_files has 10001 entries; the limit is 10000"
    })
    const endless = Stub.make([
      Stub.streaming("application/json", Stream.repeatValue(new Uint8Array(1024 * 1024).fill(32)))
    ])
    const calls = [
      ["list_files", 4, (platform: Parameters<Parameters<typeof withPlatform>[1]>[0]) => platform.listFiles("i-1")],
      ["read_file", 8, (platform: Parameters<Parameters<typeof withPlatform>[1]>[0]) => platform.readFile("i-1", "a")]
    ] as const
    for (const [operation, mebibytes, call] of calls) {
      expect(
        yield* withPlatform(endless, platform => Effect.flip(Effect.asVoid<unknown, unknown, never>(call(platform))))
      ).toMatchObject({
        reason: "too_large",
        message: `The agent platform's answer to ${operation} is longer than ${mebibytes * 1024 * 1024} bytes`
      })
    }
  })

  it("are held to the schemas of their entries", () => {
    const members = fc.record(
      Object.fromEntries(
        ["path", "type", "size", "iteration", "timestamp", "hash", "more"].map(name => [
          name,
          fc.oneof(
            fc.constantFrom<unknown>("file", "directory", 0, 1, -1, 1.5, 2 ** 53, null, [], {}, true, "x", -0, 1e300),
            fc.jsonValue()
          )
        ])
      ),
      { requiredKeys: [] }
    )
    const value = fc.oneof({ weight: 9, arbitrary: members }, { weight: 1, arbitrary: fc.jsonValue() })
    const likely = fc.record({
      path: fc.string(),
      iteration: fc.nat(),
      timestamp: fc.double({ noNaN: true, noDefaultInfinity: true }),
      size: fc.nat(),
      hash: fc.string()
    })
    const pairs = [
      [FileCalls.fileEntry, Schema.decodeUnknownEither(FileEntry)],
      [FileCalls.fileIteration, Schema.decodeUnknownEither(FileIteration)]
    ] as const
    fc.assert(
      fc.property(fc.oneof(value, likely), value => {
        for (const [check, decode] of pairs) {
          const checked = check(value)
          const decoded: Either.Either<unknown, unknown> = decode(value)
          expect("entry" in checked ? Either.right(checked.entry) : "wrong").toEqual(
            Either.isRight(decoded) ? decoded : "wrong"
          )
        }
      }),
      runs(1000)
    )
  })

  test.effect("report the path of an invalid value", function* () {
    const messages = yield* Effect.forEach(
      [{ entries: [{ path: "a" }, { path: "b", size: -1 }] }, [{}], [5], { files: [] }, "x", { entries: {} }],
      answer => Effect.map(Effect.flip(FileCalls.files(answer)), ({ message }) => message)
    )
    expect(messages).toEqual([
      "does not have the expected shape at entries.1.size",
      "does not have the expected shape at 0.path",
      "does not have the expected shape at 0",
      "does not have the expected shape at entries",
      "does not have the expected shape",
      "does not have the expected shape at entries"
    ])
  })
})

describe("an answer whose status has said it all", () => {
  test.effect("is not waited for longer than a second", function* () {
    const done = Stub.make([Stub.stalled(200)])
    yield* withPlatform(done, platform =>
      Effect.gen(function* () {
        const stop = yield* Effect.fork(platform.stop("i-1"))
        yield* TestClock.adjust("1 second")
        yield* Fiber.join(stop)
      })
    )
    const failed = Stub.make([Stub.stalled(500)])
    yield* withPlatform(failed, platform =>
      Effect.gen(function* () {
        const read = yield* Effect.fork(Effect.flip(platform.readFile("i-1", "a")))
        yield* TestClock.adjust("1 second")
        expect(yield* Fiber.join(read)).toMatchObject({ reason: "status", statusCode: 500 })
      })
    )
    expect([...done.seen, ...failed.seen].every(({ isAborted }) => isAborted())).toBe(true)
  })
})

describe("what clients learn about a failure", () => {
  test.effect("names no host and no port", function* () {
    const unreachable = Stub.make([Stub.unreachable])
    const inside = "upstream connect error: 10.1.2.3:8443"
    const failing = Stub.make([Stub.status(500, { error: inside })])
    const refusing = Stub.make([Stub.status(409, { error: "The file is locked" })])
    const messages = yield* Effect.forEach([unreachable, failing, refusing], stub =>
      Effect.map(
        withPlatform(stub, platform => finish(platform.readFile("i-1", "a"))),
        result => Either.getOrThrow(Either.flip(result)).message
      )
    )
    expect(messages).toEqual([
      "No connection to the agent platform (ECONNREFUSED)",
      "The agent platform answered 500 to read_file",
      "The agent platform answered 409 to read_file: The file is locked"
    ])
  })
})

describe("JSON of the platform", () => {
  const half = "\\ud83d"

  const parse = (text: string) => parseWellFormed(text, { levels: 100, members: 1000 })

  it("has halves of surrogate pairs repaired, wherever they are", () => {
    // The first name is of this test alone. V8 13.6 and 14.6 read the second one, if it is a single escaped character,
    // as a backslash where an object with the same first name and a backslash after it was parsed before in the
    // process.
    expect(parse(`{"only here":["${half}","\\ud83d\\ude00"],"${half}":{"__proto__":"x${half}"}}`)).toEqual(
      Either.right(JSON.parse('{"only here":["\ufffd","😀"],"\ufffd":{"__proto__":"x\ufffd"}}'))
    )
    // An escaped backslash before the letters is no escape of a surrogate.
    expect(parse('"\\\\ud83d"')).toEqual(Either.right("\\ud83d"))
    const event = Either.getOrThrow(PlatformEvent.fromFrame(`{"type":"message.delta","text":"a${half}"}`))
    expect(event.payload).toEqual({ type: "message.delta", text: "a\ufffd" })
  })

  it("is read as JSON.parse reads it, except for invalid Unicode", () => {
    fc.assert(
      fc.property(fc.jsonValue({ stringUnit: "binary" }), value => {
        const text = JSON.stringify(value)
        const read = Either.getOrThrow(parse(text))
        expect(JSON.stringify(read).isWellFormed()).toBe(true)
        expect(JSON.stringify(read)).not.toMatch(/\\ud[89a-f]/i)
        if (!/\\ud[89a-f]/i.test(text)) expect(read).toEqual(JSON.parse(text))
      }),
      runs(300)
    )
  })

  test.effect("is not parsed where it nests without end", function* () {
    const brackets = "[".repeat(4 * 1024 * 1024)
    const problem = "is nested more than 100 levels deep"
    expect(parse(brackets)).toEqual(Either.left(problem))
    expect(parse(`["${half}",${"[".repeat(5000)}${"]".repeat(5000)}]`)).toEqual(Either.left(problem))
    const stub = Stub.make([Stub.status(200, brackets.slice(0, -1))])
    expect(yield* withPlatform(stub, platform => Effect.flip(platform.listFiles("i-1")))).toMatchObject({
      reason: "malformed",
      message: "The agent platform's answer to list_files is nested more than 1000 levels deep"
    })
  })
})
