/** What the levels debug and trace add, and that it costs nothing above them. */

import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, FastCheck as fc, Layer, LogLevel, Option, TestClock } from "effect"
import { JsonText } from "../../../src/base/Json/JsonText.ts"
import * as DebugLog from "../../../src/base/Observability/DebugLog.ts"
import * as FrameSummary from "../../../src/base/Observability/LogValue.ts"
import * as ProcessMetrics from "../../../src/base/Observability/ProcessMetrics.ts"
import { SessionEvents } from "../../../src/Gateway/SessionEvents.ts"
import { Store } from "../../../src/Kv/Store.ts"
import { loggedStatements } from "../../../src/Storage/Sqlite/Database/ReadConnection.ts"
import * as SessionEventsInSqlite from "../../../src/Storage/Sqlite/SessionEvents.ts"
import * as Sqlite from "../../../src/Storage/Sqlite.ts"
import { temporaryDirectory } from "../../TemporaryDirectory.ts"
import { test } from "../../Tests.ts"
import { logged } from "./Recording.ts"

const value = "sesame-in-a-value"

/** Writes and reads in both databases. */
const use = Effect.gen(function* () {
  const path = yield* temporaryDirectory
  const context = yield* Layer.build(
    Layer.merge(
      Sqlite.layer({ directory: path, writer: "inline" }),
      SessionEventsInSqlite.layer({ directory: path, writer: "inline" })
    )
  )
  const store = Context.get(context, Store)
  const events = Context.get(context, SessionEvents)
  yield* Effect.gen(function* () {
    yield* store.commit({
      actor: "a",
      operations: [{ op: "set", namespace: "n", key: "k", value: JsonText(JSON.stringify(value)), expiresAt: null }]
    })
    assert.isTrue(Option.isSome(yield* store.get("n", "k")))
  }).pipe(Effect.withSpan("request"))
  yield* events.open("t/s", "epoch")
  yield* events.append({
    session: "t/s",
    epoch: "epoch",
    after: 0,
    timestamp: 1,
    texts: [JSON.stringify({ type: "text_delta", text: value })],
    recoveryState: null
  })
  yield* events.read("t/s", 0, 10)
})

describe("level debug", () => {
  test.scopedLive("shows database commands without values, in the span of their request", function* () {
    const { layer, lines, texts } = logged(LogLevel.Debug)
    yield* Effect.provide(use, layer)
    const commands = lines().filter(({ message }) => message === "Database command")
    const find = (database: string, pattern: RegExp) =>
      commands.find(
        ({ annotations }) => annotations?.database === database && pattern.test(String(annotations.command))
      )
    const read = find("kv.db", /^SELECT version, .* FROM entries WHERE namespace = \? AND key = \?/)
    assert.deepInclude(read?.annotations, { outcome: "ok", span: "request" })
    assert.isNumber(read?.annotations?.millis)
    assert.deepInclude(find("kv.db", /^commit$/)?.annotations, { outcome: "ok", writes: 1, operations: 1 })
    assert.isDefined(find("sessions.db", /^SELECT seq, text FROM events/))
    assert.isDefined(commands.find(({ annotations }) => annotations?.command === "commit" && annotations.events === 1))
    for (const text of texts) {
      assert.notInclude(text, value)
      assert.isBelow(text.length, 2048)
    }
  })

  test.scopedLive("is read once: above it statements are unchanged, and no line is made", function* () {
    const { layer, lines } = logged(LogLevel.Info)
    yield* Effect.provide(use, layer)
    assert.notInclude(
      lines().map(({ message }) => message),
      "Database command"
    )
    assert.isUndefined(yield* Effect.provide(DebugLog.make, layer))
    const prepared = { get: {} }
    assert.strictEqual(loggedStatements(prepared, "kv.db", undefined), prepared)
  })
})

describe("level trace", () => {
  test.scoped("shows the state of the runtime", function* () {
    const trace = logged(LogLevel.Trace)
    const debug = logged(LogLevel.Debug)
    for (const { layer } of [trace, debug]) yield* Effect.provide(Layer.build(ProcessMetrics.layerTrace), layer)
    yield* TestClock.adjust("1 second")
    const inside = () => trace.lines().filter(({ level }) => level === "TRACE")
    assert.lengthOf(inside(), 1)
    assert.hasAllKeys(inside()[0]?.annotations, ["eventLoop", "collections", "memory", "resources"])
    yield* TestClock.adjust("20 seconds")
    assert.lengthOf(inside(), 3)
    assert.lengthOf(debug.texts, 0)
  })
})

describe("a frame in debug logs", () => {
  it("is shown with names and numbers, and the length of text", () => {
    const members: ReadonlyArray<readonly [name: string, value: unknown, shown: unknown]> = [
      ["type", "create_session", "create_session"],
      ["id", "r1", "r1"],
      ["agentType", "coder", "coder"],
      ["title", "hush", "<4 characters>"],
      ["depth", 3, 3],
      ["secrets", { API_KEY: "sesame" }, "<1 members>"],
      ["environment", { REGION: "eu" }, "<1 members>"],
      ["list", ["sesame"], "<1 elements>"],
      ["none", null, null]
    ]
    const session = { id: "s1", state: "active", title: "hush", nested: { id: "n" } }
    const error = { code: "conflict", message: "sesame", retryable: false }
    const frame = { ...Object.fromEntries(members.map(([name, value]) => [name, value])), session, error }
    assert.deepStrictEqual(FrameSummary.ofText(JSON.stringify(frame)), {
      ...Object.fromEntries(members.map(([name, , shown]) => [name, shown])),
      session: { ...session, title: "<4 characters>", nested: "<1 members>" },
      error: { ...error, message: "<6 characters>" }
    })
  })

  it("is not parsed if it is long or not JSON", () => {
    assert.strictEqual(FrameSummary.ofText("sesame{"), "<7 characters>")
    assert.strictEqual(FrameSummary.ofText("[".repeat(70_000)), "<70000 characters>")
    assert.deepStrictEqual(FrameSummary.ofText(`{"type":"send_message","content":"${"x".repeat(70_000)}"}`), {
      type: "send_message",
      frame: "<70036 characters>"
    })
    assert.strictEqual(FrameSummary.ofText('["sesame"]'), "<1 elements>")
    assert.strictEqual(FrameSummary.ofText('"sesame"'), "<6 characters>")
  })

  it("has a bounded size and shows no unknown text", () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string({ maxLength: 200 }), fc.jsonValue({ maxDepth: 4 })), frame => {
        const shown = JSON.stringify(FrameSummary.ofValue(frame))
        assert.isBelow(shown.length, 40_000)
      })
    )
    const many = Object.fromEntries(Array.from({ length: 1000 }, (_, index) => [`m${index}`, "sesame".repeat(1000)]))
    const shown = JSON.stringify(FrameSummary.ofValue(many))
    assert.notInclude(shown, "sesame")
    assert.isBelow(shown.length, 2000)
    assert.deepStrictEqual(FrameSummary.ofValue({ id: "x".repeat(129) }), { id: "<129 characters>" })
  })
})
