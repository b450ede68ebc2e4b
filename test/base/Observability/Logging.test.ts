import { Writable } from "node:stream"
import * as Headers from "@effect/platform/Headers"
import { assert, describe, it } from "@effect/vitest"
import {
  Cause,
  ConfigProvider,
  Console,
  Effect,
  Either,
  FastCheck as fc,
  Layer,
  Option,
  Redacted,
  TestClock
} from "effect"
import * as Logging from "../../../src/base/Observability/Logging.ts"
import * as LogOutput from "../../../src/base/Observability/LogOutput.ts"
import * as LogValue from "../../../src/base/Observability/LogValue.ts"
import { test } from "../../Tests.ts"

/** The lines that a program logs. */
const logged = <E>(
  program: Effect.Effect<unknown, E>,
  format: "json" | "pretty" = "json",
  level: Logging.Level = "trace"
) =>
  Effect.gen(function* () {
    const lines: Array<string> = []
    const console = yield* Console.consoleWith(Effect.succeed)
    const collect = (...parts: ReadonlyArray<unknown>) => {
      lines.push(parts.map(String).join(" "))
    }
    yield* Effect.provide(program, Layer.fresh(Logging.layer({ level, format }))).pipe(
      Effect.withConsole({ ...console, unsafe: { ...console.unsafe, log: collect } })
    )
    return lines
  })

const one = <E>(program: Effect.Effect<unknown, E>) =>
  Effect.map(logged(program), lines => {
    assert.strictEqual(lines.length, 1)
    return JSON.parse(lines[0]!)
  })

describe("Logging", () => {
  test.effect("writes exactly the four fields", function* () {
    yield* TestClock.setTime(Date.UTC(2024, 1, 29, 12, 30, 15, 7))
    const { fiber, ...line } = yield* one(Effect.logWarning("Beware"))
    assert.deepStrictEqual(line, { level: "WARN", message: "Beware", timestamp: "2024-02-29T12:30:15.007Z" })
    assert.match(fiber, /^#\d+$/)
  })

  test.effect("keeps annotations and spans apart from them", function* () {
    const program = Effect.zipRight(TestClock.adjust("40 millis"), Effect.logInfo("Hello")).pipe(
      Effect.withLogSpan("work"),
      Effect.annotateLogs({ level: "mine", message: 1, timestamp: null, fiber: { a: [true] } })
    )
    const { level, message, annotations, spans } = yield* one(program)
    assert.strictEqual(level, "INFO")
    assert.strictEqual(message, "Hello")
    assert.deepStrictEqual(annotations, { level: "mine", message: 1, timestamp: null, fiber: { a: [true] } })
    assert.deepStrictEqual(spans, { work: 40 })
  })

  test.effect("names the trace and the span that the fiber works in, while tracing is on", function* () {
    const program = Effect.annotateLogs(Effect.logInfo("Hello"), "requestId", "r-1")
    const { annotations } = yield* one(
      Effect.flatMap(Effect.currentSpan, ({ spanId, traceId }) =>
        Effect.annotateLogs(program, { expected: [traceId, spanId] })
      ).pipe(Effect.withSpan("work"))
    )
    const { expected, span, spanId, traceId, requestId } = annotations
    assert.deepStrictEqual(
      { expected, span, requestId },
      { expected: [traceId, spanId], span: "work", requestId: "r-1" }
    )
    assert.match(traceId, /^[0-9a-f]{32}$/)
    const off = yield* one(program.pipe(Effect.withSpan("work"), Effect.withTracerEnabled(false)))
    assert.deepStrictEqual(off.annotations, { requestId: "r-1" })
    const own = yield* one(program.pipe(Effect.annotateLogs("traceId", "mine"), Effect.withSpan("work")))
    assert.strictEqual(own.annotations.traceId, "mine")
    const readable = yield* logged(Effect.withSpan(program, "work"), "pretty")
    assert.match(readable.join("\n"), /INFO.*Hello[\s\S]*traceId.*[0-9a-f]{32}/)
  })

  test.effect("reads LOG_LEVEL in any case, and warn as warning", function* () {
    const read = (level: string) =>
      Effect.withConfigProvider(Logging.config, ConfigProvider.fromMap(new Map([["LOG_LEVEL", level]])))
    for (const level of ["WARNING", "warn", "WARN", "Warning", " warning "]) {
      assert.strictEqual(yield* read(level), "warning", level)
    }
    for (const level of ["trace", "debug", "info", "error", "fatal"] as const) {
      assert.strictEqual(yield* read(level.toUpperCase()), level)
    }
    for (const level of ["warnings", "constructor", "none", "all"]) {
      assert.isTrue(Either.isLeft(yield* Effect.either(read(level))), level)
    }
  })

  test.effect("writes upper-case levels, from the configured one on", function* () {
    const program = Effect.all([
      Effect.logTrace(""),
      Effect.logDebug(""),
      Effect.logInfo(""),
      Effect.logWarning(""),
      Effect.logError(""),
      Effect.logFatal("")
    ])
    const levels = (lines: ReadonlyArray<string>) => lines.map(line => JSON.parse(line).level)
    assert.deepStrictEqual(levels(yield* logged(program)), ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"])
    assert.deepStrictEqual(levels(yield* logged(program, "json", "warning")), ["WARN", "ERROR", "FATAL"])
    assert.deepStrictEqual(levels(yield* logged(program, "json", "fatal")), ["FATAL"])
  })

  test.effect("renders causes and errors into the message", function* () {
    const failed = yield* one(Effect.logError(Cause.fail(new Error("no disk", { cause: new Error("why") }))))
    assert.include(failed.message, "no disk")
    assert.include(failed.message, "why")
    const died = yield* one(Effect.logError("Serving failed", Cause.die("a bug")))
    assert.match(died.message, /^Serving failed\n.*a bug/s)
    assert.include((yield* one(Effect.logError(new Error("plain")))).message, "plain")
    assert.strictEqual((yield* one(Effect.logInfo("a", { b: 1 }, [2]))).message, 'a {"b":1} [2]')
  })

  test.effect("shows no secrets", function* () {
    const secret = Redacted.make("sesame")
    const headers = Headers.fromInput({ authorization: "Bearer sesame", accept: "*/*" })
    const program = Effect.logInfo("Keys", secret, { deep: [Option.some(secret)] }).pipe(
      Effect.annotateLogs({ secret, headers })
    )
    for (const format of ["json", "pretty"] as const) {
      const text = (yield* logged(program, format)).join("\n")
      assert.notInclude(text, "sesame")
      assert.include(text, "<redacted>")
    }
  })

  test.effect("never throws, whatever it is given", function* () {
    const cyclic: Record<string, unknown> = { big: 1n, date: new Date(Number.NaN), none: undefined }
    cyclic.self = cyclic
    const hostile = {
      get trap() {
        throw new Error("gotcha")
      }
    }
    const liar = {
      toJSON() {
        throw new Error("gotcha")
      }
    }
    const values = [cyclic, hostile, liar, Symbol("s"), () => 1, undefined, null, Number.NaN, new Map([[1, cyclic]])]
    const program = Effect.forEach(values, value => Effect.annotateLogs(Effect.logError(value), { value }))
    const lines = yield* logged(program)
    assert.strictEqual(lines.length, values.length)
    assert.deepStrictEqual(JSON.parse(lines[0]!).annotations.value, {
      big: "1",
      date: null,
      none: "undefined",
      self: "[circular]"
    })
    for (const line of lines) assert.isNotEmpty(JSON.parse(line).message)
    const readable = yield* logged(
      Effect.forEach(values, value => Effect.logError(value)),
      "pretty"
    )
    assert.isAtLeast(readable.length, values.length)
  })

  it("prints any value as bounded JSON", () => {
    fc.assert(
      fc.property(fc.anything({ withBigInt: true, withDate: true, withMap: true, withSet: true }), value => {
        const text = JSON.stringify(LogValue.fromUnknown(value))
        assert.isString(text)
      })
    )
    const wide = Array.from({ length: 200 }, () => Array.from({ length: 200 }, () => ["x".repeat(100)]))
    for (const huge of ["x".repeat(1_000_000), Array.from({ length: 100_000 }, () => 1), wide]) {
      assert.isBelow(LogValue.toText(huge).length, 70_000)
    }
  })
})

/** An output whose reader reads on request. */
const slow = () => {
  const read: Array<string> = []
  const waiting: Array<() => void> = []
  const output = new Writable({
    highWaterMark: 10,
    write: (chunk, _encoding, done) => {
      waiting.push(() => {
        read.push(String(chunk))
        done()
      })
    }
  })
  const step = async (): Promise<void> => {
    waiting.shift()?.()
    await new Promise(setImmediate)
  }
  return { output, read, step }
}

const notice = (lines: number): string => `[${lines}]`

describe("The output of the log", () => {
  it("buffers a bounded amount for a reader that does not read", () => {
    const { output } = slow()
    const log = LogOutput.bounded(output, notice)
    for (let line = 0; line < 20_000; line++) log.write("x".repeat(1000))
    assert.isAtMost(output.writableLength, LogOutput.maxWaiting + 1000)
    assert.strictEqual(log.writableLength, 0)
  })

  it("continues when half of it is read, and reports there how much is missing", async () => {
    const { output, read, step } = slow()
    const log = LogOutput.bounded(output, notice, 40)
    for (const line of "abcdefg") log.write(line.repeat(10))
    assert.strictEqual(output.writableLength, 40)
    await step()
    log.write("h".repeat(10))
    await step()
    await step()
    log.write("i".repeat(10))
    for (let left = 0; left < 5; left++) await step()
    assert.deepStrictEqual(
      read.map(text => (text.startsWith("[") ? text : text[0])),
      ["a", "b", "c", "d", "[4]", "i"]
    )
  })

  it("reports it as soon as all is read, if nothing more is logged", async () => {
    const { output, read, step } = slow()
    const log = LogOutput.bounded(output, notice, 20)
    for (const line of "abc") log.write(line.repeat(10))
    for (let left = 0; left < 3; left++) await step()
    assert.deepStrictEqual(read.slice(2), ["[1]"])
  })

  it("gives notice as the log is written", () => {
    const { timestamp, ...line } = JSON.parse(LogOutput.notice(true)(3))
    assert.isFalse(Number.isNaN(Date.parse(timestamp)))
    assert.deepStrictEqual(line, {
      level: "WARN",
      message: "Lines of the log were dropped, since they were not read in time",
      fiber: "#0",
      annotations: { lines: 3 }
    })
    assert.match(LogOutput.notice(false)(3), /WARN Lines .* \(3\)\n$/)
  })
})
