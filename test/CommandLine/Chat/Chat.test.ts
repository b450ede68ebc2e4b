import { assert, describe } from "@effect/vitest"
import { Effect, Exit, Option, Redacted } from "effect"
import * as Command from "../../../src/CommandLine/Chat/Commands.ts"
import { closeCodes, type EventBody } from "../../../src/Gateway/Protocol.ts"
import { test } from "../../Tests.ts"
import { failureOf, hold } from "./Conversation.ts"
import * as FakeGateway from "./FakeGateway.ts"

/** A turn in which the agent says something. */
const saying = (turnId: string, ...pieces: ReadonlyArray<string>): ReadonlyArray<EventBody> => [
  { type: "turn_started", turnId },
  { type: "text_start", turnId, messageId: `${turnId}-m` },
  ...pieces.map((text): EventBody => ({ type: "text_delta", turnId, messageId: `${turnId}-m`, text })),
  { type: "text_end", turnId, messageId: `${turnId}-m`, text: pieces.join("") },
  { type: "turn_completed", turnId }
]

const echo = (content: string, turnId: string) => saying(turnId, "echo: ", content)

const greeting = "· session s_1; :help lists the commands\n"

describe("a conversation from a file or a pipe", () => {
  test.scopedLive("sends each line after the end of the previous turn, and prints the events", function* () {
    const gateway = yield* FakeGateway.make({ onMessage: echo })
    const token = Redacted.make("me")
    const held = yield* hold({ url: gateway.url, token }, ["one", "", "two"])
    assert.deepStrictEqual(held.exit, Exit.void)
    assert.strictEqual(held.output, `${greeting}echo: one\necho: two\n`)
    assert.deepStrictEqual(gateway.handshakes, [{ authorization: "Bearer me", protocol: "" }])
  })

  test.scopedLive("reports missing events and a new history", function* () {
    const gateway = yield* FakeGateway.make({
      onMessage: (content, turnId) =>
        content === "trim"
          ? [{ close: 1001 }, ...echo(content, turnId), { trim: 8 }]
          : content === "reset"
            ? [{ close: 1001 }, { reset: "e_2" }, ...echo(content, turnId)]
            : echo(content, turnId)
    })
    const { exit, output } = yield* hold({ url: gateway.url }, ["hello", "trim", "reset"])
    assert.deepStrictEqual(exit, Exit.void)
    const places = [
      "echo: hello\n",
      "· events that are no longer kept are missing here\n",
      "echo: trim\n",
      "· the history was reset; this is the new one\n",
      "echo: reset\n"
    ].map(text => output.indexOf(text))
    assert.deepStrictEqual(
      places,
      [...places].sort((a, b) => a - b)
    )
    assert.isAbove(places[0]!, 0)
  })

  test.scopedLive("answers questions by the next line, and fails at the end of input", function* () {
    const gateway = yield* FakeGateway.make({
      onMessage: (content, turnId) => [
        { type: "turn_started", turnId },
        content === "may I?"
          ? { type: "approval_requested", turnId, requestId: "a", action: "rm" }
          : { type: "question_requested", turnId, requestId: "q", question: "Which?", options: ["red", "blue"] }
      ],
      onAnswer: (answer, requestId) => [
        requestId === "a"
          ? { type: "approval_resolved", requestId, approved: answer === true }
          : { type: "question_resolved", requestId, answer },
        { type: "turn_completed", turnId: requestId === "a" ? "t2" : "t1" }
      ]
    })
    const { exit, output } = yield* hold({ url: gateway.url }, ["ask", "2", "may I?", "perhaps", "y"])
    assert.deepStrictEqual(exit, Exit.void)
    assert.strictEqual(
      output,
      [
        `${greeting}? Which?\n  1. red\n  2. blue\n· answered: blue`,
        "? May the agent do this? rm\n  Answer yes or no.\nAnswer yes or no.\n· approved\n"
      ].join("\n")
    )
    const unanswered = yield* hold({ url: gateway.url }, ["ask"])
    assert.strictEqual(failureOf(unanswered), "The input ended before the agent was answered")
  })

  test.scopedLive("lists files and sessions", function* () {
    const gateway = yield* FakeGateway.make({ onMessage: echo })
    const lines = [
      ":files",
      ":files notes",
      ":read a.md",
      ":at a.md 2",
      ":history a.md",
      ":sessions",
      ":start",
      ":stop"
    ]
    const { exit, output } = yield* hold({ url: gateway.url }, lines)
    assert.deepStrictEqual(exit, Exit.void)
    const session = "s_1  active  (no title)  0 events"
    const expected = ["src/", "notes/", "now", "then 2", "1  1970-01-01T00:00:00.000Z  4 bytes  h"]
    assert.strictEqual(output, `${greeting}${[...expected, session, session, session, ""].join("\n")}`)
  })

  test.scopedLive(
    "continues after failed turns, refused requests and invalid commands, and exits with a failure",
    function* () {
      const gateway = yield* FakeGateway.make({
        refusals: { read_file: "not_found" },
        onMessage: (content, turnId) =>
          content === "fail"
            ? [{ type: "turn_errored", turnId, code: "c", message: "m", retryable: false }]
            : echo(content, turnId)
      })
      const held = yield* hold({ url: gateway.url }, ["fail", ":read a", ":dance", "on"])
      assert.strictEqual(failureOf(held), "3 things failed")
      assert.include(held.output, "✗ the turn failed: m (c).\n")
      assert.include(held.output, "✗ no read_file (not_found, trace 0123456789abcdef0123456789abcdef)\n")
      assert.include(held.output, "echo: on\n")
    }
  )

  test.scopedLive("prints records for programs, and text without a record on standard error", function* () {
    const gateway = yield* FakeGateway.make({
      refusals: { read_file: "not_found" },
      onMessage: (content, turnId) =>
        content === "leave" ? [{ close: 1001 }, ...echo(content, turnId)] : echo(content, turnId)
    })
    const lines = ["hello", ":files", ":at a.md 2", ":history a.md", ":sessions", ":stop", ":read a", ":help", "leave"]
    const held = yield* hold({ url: gateway.url, json: true }, lines)
    assert.strictEqual(failureOf(held), "One thing failed")
    const printed = held.records
      .split("\n")
      .slice(0, -1)
      .map(line => JSON.parse(line))
    const [first] = printed
    assert.deepStrictEqual([first.type, first.session.id], ["synced", "s_1"])
    const ofType = (type: string) => printed.filter(record => record.type === type)
    assert.deepStrictEqual(
      ofType("event").map(({ event }) => [event.type, event.turnId]),
      [...echo("hello", "t1"), ...echo("leave", "t2")].map(event => [event.type, "turnId" in event && event.turnId])
    )
    assert.deepStrictEqual(ofType("files"), [{ type: "files", files: [{ path: "src", type: "directory" }] }])
    const file = { path: "a.md", content: "then 2", encoding: "utf-8" }
    assert.deepStrictEqual(ofType("file"), [{ type: "file", file }])
    const iterations = [{ iteration: 1, timestamp: 0, size: 4, hash: "h" }]
    assert.deepStrictEqual(ofType("iterations"), [{ type: "iterations", iterations }])
    assert.deepStrictEqual(
      [
        ...ofType("sessions").map(({ sessions }) => sessions[0].id),
        ...ofType("session").map(({ session }) => session.id)
      ],
      ["s_1", "s_1"]
    )
    // No greeting, and no text for which a record exists.
    const notes = [
      `✗ no read_file (not_found, trace ${FakeGateway.traceId})`,
      Command.help,
      "· The gateway closed the connection: 1001; connecting again",
      "· connected again",
      ""
    ]
    assert.strictEqual(held.output, notes.join("\n"))
  })

  test.scopedLive("ends when the reader of records has closed the pipe", function* () {
    const gateway = yield* FakeGateway.make({ onMessage: echo })
    const { exit } = yield* hold({ url: gateway.url, json: true }, [{ shown: "never" }], false, true)
    assert.deepStrictEqual((yield* Effect.flip(exit))._tag, "OutputClosed")
  })

  test.scopedLive(
    "fails at once if the gateway refuses, is absent, has no such session, or closes with a final code",
    function* () {
      const refusing = yield* FakeGateway.make({ onMessage: echo, status: () => 401 })
      assert.include(failureOf(yield* hold({ url: refusing.url }, ["hello"])), ": not you")
      const gone = yield* Effect.scoped(FakeGateway.make({ onMessage: echo }))
      assert.include(failureOf(yield* hold({ url: gone.url }, ["hello"])), "ECONNREFUSED")
      const strange = yield* FakeGateway.make({ onMessage: echo, refusals: { subscribe: "not_found" } })
      const held = yield* hold({ url: strange.url, session: Option.some("s_9") }, ["hello"])
      assert.strictEqual(failureOf(held), "no subscribe")
      const closing = yield* FakeGateway.make({ onMessage: () => [{ close: closeCodes.tokenExpired.code }] })
      assert.include(failureOf(yield* hold({ url: closing.url }, ["hello"])), "closed the connection: 4501")
      assert.strictEqual(closing.handshakes.length, 1)
    }
  )

  test.scopedLive("gives up if the gateway stays unavailable", function* () {
    let status: number | undefined
    const gateway = yield* FakeGateway.make({
      status: () => status,
      onMessage: () => {
        status = 503
        return [{ close: 1001 }]
      }
    })
    const held = yield* hold({ url: gateway.url, giveUpAfter: "50 millis" }, ["hello"])
    assert.include(failureOf(held), ": not you")
    assert.isAbove(gateway.handshakes.length, 1)
  })
})

const interrupt = { is: "interrupt" } as const

describe("an interactive conversation", () => {
  test.scopedLive("accepts lines during a turn; Ctrl-C interrupts a turn, and otherwise ends the client", function* () {
    const gateway = yield* FakeGateway.make({
      onMessage: (content, turnId) => (content === "hang" ? saying(turnId, "well").slice(0, 3) : echo(content, turnId))
    })
    const held = yield* hold(
      { url: gateway.url },
      [
        ...["hang", { shown: "well" }, ":read a", { shown: "now" }],
        ...[interrupt, { shown: "the turn was interrupted" }],
        // An answer after the end of a turn shows that the end has arrived.
        ...["hello", { shown: "echo: hello" }, ":sessions", { shown: "10 events" }, interrupt]
      ],
      true
    )
    assert.deepStrictEqual(
      gateway.requests.map(({ type }) => type),
      ["create_session", "subscribe", "send_message", "read_file", "interrupt_turn", "send_message", "list_sessions"]
    )
    assert.include(held.output, "· the turn was interrupted\n")
    assert.include(held.output, "Continue with --session s_1\n")
    assert.isTrue(Exit.isFailure(held.exit) && failureOf(held) === undefined)
  })
})
