import { describe, expect, it } from "@effect/vitest"
import { Effect, Either, Fiber, FastCheck as fc, Option, TestClock } from "effect"
import * as FileCalls from "../../../src/Upstream/AgentPlatform/FileCalls.ts"
import type { FileCallError } from "../../../src/Upstream/AgentPlatform.ts"
import { codePoint } from "../../CodePoint.ts"
import { times } from "../../Scale.ts"
import { test } from "../../Tests.ts"
import { asked, content, finish, withPlatform } from "../Platform.ts"
import * as Stub from "../Stub.ts"

describe("file calls", () => {
  test.effect("ask for what they are named after", function* () {
    const iterations = [
      { iteration: 2, timestamp: 20, size: 1, hash: "b" },
      { iteration: 1, timestamp: 10, size: 1, hash: "a" }
    ]
    const entries = [
      { path: "a b", type: "file", size: 1 },
      { path: "d", type: "directory" }
    ]
    const stub = Stub.make([
      Stub.status(200, { entries }),
      Stub.status(200, entries),
      Stub.status(200, { path: "a", ...content }),
      Stub.status(200, { iterations }),
      Stub.status(200, { content: "aGk=", encoding: "base64" })
    ])
    yield* withPlatform(stub, platform =>
      Effect.gen(function* () {
        expect(yield* platform.listFiles("i-1")).toEqual(entries)
        expect(yield* platform.listFiles("i-1", { path: "src/ä & b+c", depth: 2 })).toEqual(entries)
        expect(yield* platform.readFile("i-1", "src/a b?#%.ts")).toEqual(content)
        expect((yield* platform.fileHistory("i-1", "a")).map(({ iteration }) => iteration)).toEqual([1, 2])
        expect(yield* platform.fileAtIteration("i-1", "日本.txt", 7)).toEqual({ content: "aGk=", encoding: "base64" })
      })
    )
    const base = "http://platform.test/base/api/v1/instances/i-1/files"
    expect(stub.seen.map(({ method, url }) => `${method} ${url}`)).toEqual([
      `GET ${base}?path=.&depth=1`,
      `GET ${base}?path=src%2F%C3%A4%20%26%20b%2Bc&depth=2`,
      `GET ${base}/src%2Fa%20b%3F%23%25.ts`,
      `GET ${base}/a/history`,
      `GET ${base}/%E6%97%A5%E6%9C%AC.txt/at/7`
    ])
  })

  asked("refuse bad paths and numbers before any call", [Stub.status(200, content)], function* ({ platform, stub }) {
    const bad = [
      "",
      "/etc/passwd",
      "a/../b",
      "..",
      "a\\..\\b",
      "\\\\host\\share",
      "C:\\x",
      "a\0b",
      "\ud800",
      "a".repeat(2049)
    ]
    const calls = bad.flatMap(
      (path): ReadonlyArray<Effect.Effect<unknown, FileCallError>> => [
        platform.listFiles("i-1", { path }),
        platform.readFile("i-1", path),
        platform.fileHistory("i-1", path),
        platform.fileAtIteration("i-1", path, 1)
      ]
    )
    const more = [
      platform.readFile("i-1", "."),
      platform.fileAtIteration("i-1", "a", -1),
      platform.fileAtIteration("i-1", "a", 1.5),
      platform.listFiles("i-1", { depth: Number.NaN })
    ]
    for (const call of [...calls, ...more]) {
      expect((yield* Effect.flip(call))._tag).toBe("InvalidFileRequest")
    }
    expect((yield* Effect.flip(platform.readFile("i-1", "a/../b"))).message).toBe('The file path holds a ".." segment')
    expect(stub.seen).toHaveLength(0)
  })

  it("any path that is accepted comes out of its segment as it was, and stays one segment", () => {
    const path = fc.oneof(fc.string({ unit: codePoint }), fc.stringMatching(/^[a./\\%?#:]{0,8}$/))
    fc.assert(
      fc.property(path, path => {
        const segment = FileCalls.toSegment(path)
        if (Either.isLeft(segment)) return
        const url = new URL(`http://platform.test/files/${segment.right}/history`)
        const parts = url.pathname.split("/")
        expect(parts).toHaveLength(4)
        expect(decodeURIComponent(parts[2]!)).toBe(path)
        expect(path.split("/")).not.toContain("..")
      }),
      { numRuns: times(500) }
    )
  })

  test.effect("take an answer that comes within 15 s, and give up after 15 s", function* () {
    const slow = Stub.make([Stub.late(14_999, Stub.status(200, content))])
    expect(yield* withPlatform(slow, platform => finish(platform.readFile("i-1", "a")))).toEqual(Either.right(content))

    const dead = Stub.make([Stub.hanging])
    yield* withPlatform(dead, platform =>
      Effect.gen(function* () {
        const fiber = yield* Effect.fork(Effect.flip(platform.readFile("i-1", "a")))
        yield* TestClock.adjust("14999 millis")
        expect(yield* Fiber.poll(fiber)).toEqual(Option.none())
        yield* TestClock.adjust("1 millis")
        expect(yield* Fiber.join(fiber)).toMatchObject({
          _tag: "AgentPlatformConnectionError",
          reason: "timeout",
          message: "No answer to read_file within 15s"
        })
        expect(dead.seen).toHaveLength(1)
        expect(dead.seen[0]!.isAborted()).toBe(true)
      })
    )
  })

  asked(
    "take no answer longer than allowed, which opens no breaker",
    [Stub.status(200, content, { "content-length": String(64 * 1024 * 1024) })],
    function* ({ platform, stub }) {
      for (let i = 0; i < 10; i++) {
        expect(yield* Effect.flip(platform.readFile("i-1", "a"))).toMatchObject({ reason: "too_large" })
      }

      expect(stub.seen).toHaveLength(10)
      expect(stub.seen.every(({ isAborted }) => isAborted())).toBe(true)
    }
  )

  asked(
    "take nothing but what a schema takes, and an open breaker sends nothing",
    [
      Stub.status(200, "not JSON"),
      Stub.status(200, { content: 5 }),
      Stub.status(200, ""),
      Stub.status(204),
      Stub.status(200, null),
      Stub.status(500)
    ],
    function* ({ platform, stub }) {
      // The answer to one user's file does not block other users.
      for (let i = 0; i < 5; i++) {
        expect(yield* Effect.flip(platform.readFile("i-1", "a"))).toMatchObject({ reason: "malformed" })
      }
      for (let i = 0; i < 5; i++) {
        expect(yield* Effect.flip(platform.readFile("i-1", "a"))).toMatchObject({ reason: "status" })
      }
      expect(yield* Effect.flip(platform.readFile("i-1", "a"))).toMatchObject({
        _tag: "AgentPlatformConnectionError",
        reason: "circuit_open",
        statusCode: 503
      })

      expect(stub.seen).toHaveLength(10)
    }
  )

  test.effect("send the trace along while there is one, and nothing while tracing is off", function* () {
    const stub = Stub.make([Stub.status(200, content)])
    yield* withPlatform(stub, platform =>
      Effect.gen(function* () {
        const span = yield* Effect.currentSpan
        yield* platform.readFile("i-1", "a")
        expect(stub.seen[0]!.headers.traceparent).toMatch(new RegExp(`^00-${span.traceId}-[0-9a-f]{16}-01$`))
      }).pipe(Effect.withSpan("outer"))
    )
    yield* withPlatform(stub, platform => platform.readFile("i-1", "a")).pipe(Effect.withTracerEnabled(false))
    expect(stub.seen[1]!.headers.traceparent).toBeUndefined()
  })
})
