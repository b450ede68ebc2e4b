import { assert, describe, it } from "@effect/vitest"
import { Effect, Either, Exit, FastCheck as fc, Option, Redacted, Schedule } from "effect"
import * as Arguments from "../scripts/chat/Arguments.ts"
import * as Command from "../scripts/chat/Command.ts"
import * as Place from "../scripts/chat/Place.ts"
import * as Requests from "../scripts/chat/Requests.ts"
import { closeCodes, type EventBody } from "../src/Gateway/Protocol.ts"
import { failureOf, hold } from "./chat/Conversation.ts"
import * as FakeGateway from "./chat/FakeGateway.ts"

const soak = Number(process.env.SOAK ?? 1)

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

describe("a line", () => {
  const cases: ReadonlyArray<readonly [string, Command.Command | string]> = [
    ["", { do: "nothing" }],
    ["  ", { do: "nothing" }],
    ["hello :quit", { do: "say", content: "hello :quit" }],
    ["::quit", { do: "say", content: ":quit" }],
    [":quit", { do: "quit" }],
    [":help ", { do: "help" }],
    [":files", { do: "files", path: undefined }],
    [":files my notes", { do: "files", path: "my notes" }],
    [":read a b.md ", { do: "read", path: "a b.md" }],
    [":history a", { do: "history", path: "a" }],
    [":at a b.md 12", { do: "at", path: "a b.md", iteration: 12 }],
    [":at a.md", ":at needs a path and the number of an iteration."],
    [":at 12", ":at needs a path and the number of an iteration."],
    [":read", ":read needs a path."],
    [":stop now", ":stop takes nothing."],
    [":dance", "There is no command :dance."],
    [":", "There is no command :."]
  ]
  it.each(cases)("%j", (line, meaning) => {
    const parsed = Either.mapLeft(Command.parse(line), ({ message }) => message)
    const expected =
      typeof meaning === "string" ? Either.left(`${meaning} :help lists all commands.`) : Either.right(meaning)
    assert.deepStrictEqual(parsed, expected)
  })
})

describe("an answer", () => {
  const question = (...options: ReadonlyArray<unknown>): Requests.Open => ({
    kind: "question",
    requestId: "q",
    turnId: "t",
    options
  })
  const approval: Requests.Open = { kind: "approval", requestId: "a", turnId: "t", options: [] }
  it("is an option by its number, or any text", () => {
    assert.deepStrictEqual(Requests.answerOf(question("red", { rgb: 5 }), "2"), Either.right({ rgb: 5 }))
    assert.deepStrictEqual(Requests.answerOf(question("red"), "3"), Either.right("3"))
    assert.deepStrictEqual(Requests.answerOf(question("2", "1"), "1"), Either.right("1"))
    assert.deepStrictEqual(Requests.answerOf(question(), " green "), Either.right("green"))
  })
  it("to an approval is yes or no", () => {
    assert.deepStrictEqual(Requests.answerOf(approval, " Yes "), Either.right(true))
    assert.deepStrictEqual(Requests.answerOf(approval, "deny"), Either.right(false))
    assert.isTrue(Either.isLeft(Requests.answerOf(approval, "perhaps")))
  })
})

describe("the place in a history", () => {
  it("shows each event once, in order, whatever comes again", () => {
    const arrivals = fc.array(fc.integer({ min: 1, max: 30 }), { maxLength: 60 })
    fc.assert(
      fc.property(arrivals, seqs => {
        let place = Place.start("s")
        const shown: Array<number> = []
        for (const seq of seqs) {
          const next = Place.accept(place, { sessionId: "s", seq })
          if (next !== undefined) shown.push(seq)
          place = next ?? place
        }
        assert.deepStrictEqual(
          shown,
          [...new Set(shown)].sort((a, b) => a - b)
        )
        assert.strictEqual(place.seq, Math.max(0, ...seqs))
      }),
      { numRuns: 200 * soak }
    )
  })
  it("begins anew where the history is another one, and names what is missing where it was trimmed", () => {
    const at = { ...Place.start("s"), seq: 7, epoch: "a" }
    const told = { epoch: "a", headSeq: 9, recovered: true }
    assert.deepStrictEqual(Place.resume(at, told), [{ ...at, headSeq: 9 }, undefined])
    assert.deepStrictEqual(Place.resume(at, { ...told, recovered: false }), [{ ...at, headSeq: 9 }, "gap"])
    const anew = { ...at, epoch: "b", seq: 0, headSeq: 9 }
    assert.deepStrictEqual(Place.resume(at, { ...told, epoch: "b", recovered: false }), [anew, "reset"])
    assert.strictEqual(Place.resume(at, { ...told, headSeq: 3, recovered: false })[1], "reset")
    assert.strictEqual(Place.resume(Place.start("s"), { ...told, recovered: false })[1], undefined)
    assert.strictEqual(Place.accept(at, { sessionId: "other", seq: 8 }), undefined)
  })
})

describe("arguments", () => {
  it.effect("come from the command line, then from the environment", () =>
    Effect.gen(function* () {
      const given = yield* Arguments.read(["--url", "https://gateway.example", "--session", "s_1"], {
        CHAT_URL: "ws://elsewhere/ws",
        CHAT_TOKEN: "secret",
        CHAT_AGENT: " "
      })
      if (given === "help") return assert.fail("help was not asked for")
      assert.strictEqual(given.url, "wss://gateway.example/ws")
      assert.deepStrictEqual(Option.map(given.token, Redacted.value), Option.some("secret"))
      assert.deepStrictEqual(given.session, Option.some("s_1"))
      assert.strictEqual(given.agentType, "assistant")
      assert.strictEqual(yield* Arguments.read(["--help"], {}), "help")
      assert.include(Arguments.help(), "CHAT_TOKEN")
    })
  )
  it.effect("that are wrong are named", () =>
    Effect.gen(function* () {
      const { message } = yield* Effect.flip(Arguments.read(["--url", "ftp://x", "--session", "a b"], {}))
      assert.include(message, '--url: "ftp://x" is not an address')
      assert.include(message, "--session:")
      assert.include((yield* Effect.flip(Arguments.read(["--colour"], {}))).message, "--colour")
    })
  )
})

describe("a conversation by itself", () => {
  it.scopedLive("sends a line when the turn of the one before has ended, and prints what comes of it", () =>
    Effect.gen(function* () {
      const gateway = yield* FakeGateway.make({ onMessage: echo })
      const token = Option.some(Redacted.make("me"))
      const held = yield* hold({ url: gateway.url, token }, ["one", "", "two"])
      assert.deepStrictEqual(held.exit, Exit.void)
      assert.strictEqual(held.output, `${greeting}echo: one\necho: two\n`)
      assert.deepStrictEqual(gateway.handshakes, [{ authorization: "Bearer me", protocol: "causeway.v1" }])
    })
  )

  it.scopedLive("goes on where it was when the connection is lost, and prints nothing twice", () =>
    Effect.gen(function* () {
      const gateway = yield* FakeGateway.make({
        onMessage: (_, turnId) => {
          const [start, begin, first, ...rest] = saying(turnId, "before ", "after", ", done")
          return [...[start!, begin!, first!, "again" as const], ...[{ close: closeCodes.slowConsumer.code }, ...rest]]
        }
      })
      const held = yield* hold({ url: gateway.url }, ["go", "again"])
      assert.deepStrictEqual(held.exit, Exit.void)
      const lost = "· the gateway closed the connection (4008); connecting again\n"
      assert.include(held.output, `before \n${lost}`)
      assert.strictEqual(held.output.split("before ").length, 3)
      assert.strictEqual(held.output.split("after, done\n").length, 3)
      assert.strictEqual(held.output.split("connected again\n").length, 3)
      const subscriptions = gateway.requests.flatMap(request => (request.type === "subscribe" ? [request] : []))
      assert.deepStrictEqual(
        subscriptions.map(({ afterSeq, epoch }) => [afterSeq, epoch]),
        [
          [undefined, undefined],
          [3, "e_1"],
          [10, "e_1"]
        ]
      )
    })
  )

  it.scopedLive("says where events are missing, and where the history is another one", () =>
    Effect.gen(function* () {
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
  )

  it.scopedLive("learns from the history whether a message got through whose answer was lost", () =>
    Effect.gen(function* () {
      const gateway = yield* FakeGateway.make({
        loseAnswers: true,
        onMessage: (content, turnId) => (content === "swallowed" ? [] : echo(content, turnId))
      })
      const through = yield* hold({ url: gateway.url }, ["one", "two"])
      assert.deepStrictEqual(through.exit, Exit.void)
      assert.include(through.output, "echo: one\n")
      assert.include(through.output, "echo: two\n")
      const swallowed = yield* hold({ url: gateway.url }, ["swallowed"])
      assert.include(swallowed.output, "Send the message again, unless it has been taken in.")
      assert.strictEqual(failureOf(swallowed), "One thing failed")
    })
  )

  it.scopedLive("answers questions by the next line, and fails where none is left", () =>
    Effect.gen(function* () {
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
  )

  it.scopedLive("asks for files and sessions", () =>
    Effect.gen(function* () {
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
  )

  it.scopedLive("ends with a failure after failed turns, refused requests and wrong commands, having gone on", () =>
    Effect.gen(function* () {
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
    })
  )

  it.scopedLive("takes frames that it does not know for what they are: of no concern", () =>
    Effect.gen(function* () {
      const unknown = { type: "poem_recited", sessionId: "s_1", seq: 1, timestamp: 0, traceId: "0".repeat(32) }
      const gateway = yield* FakeGateway.make({
        onMessage: (content, turnId) => [
          ...["not json", "[]", '{"type":"surprise"}', JSON.stringify({ ...unknown, sessionId: "s_2" })].map(frame => ({
            frame
          })),
          ...echo(content, turnId)
        ]
      })
      const { exit, output } = yield* hold({ url: gateway.url }, ["hello"])
      assert.deepStrictEqual(exit, Exit.void)
      assert.strictEqual(output, `${greeting}echo: hello\n`)
    })
  )

  it.scopedLive("fails at once where the gateway refuses, is not there, has no such session or closes for good", () =>
    Effect.gen(function* () {
      const refusing = yield* FakeGateway.make({ onMessage: echo, status: () => 401 })
      assert.include(failureOf(yield* hold({ url: refusing.url }, ["hello"])), "the gateway answers 401: not you")
      const gone = yield* Effect.scoped(FakeGateway.make({ onMessage: echo }))
      assert.include(failureOf(yield* hold({ url: gone.url }, ["hello"])), "ECONNREFUSED")
      const strange = yield* FakeGateway.make({ onMessage: echo, refusals: { subscribe: "not_found" } })
      const held = yield* hold({ url: strange.url, session: Option.some("s_9") }, ["hello"])
      assert.strictEqual(failureOf(held), "no subscribe")
      const closing = yield* FakeGateway.make({ onMessage: () => [{ close: closeCodes.tokenExpired.code }] })
      assert.include(failureOf(yield* hold({ url: closing.url }, ["hello"])), "closed the connection (4501)")
      assert.strictEqual(closing.connections(), 1)
    })
  )

  it.scopedLive("gives up when the gateway stays away", () =>
    Effect.gen(function* () {
      let status: number | undefined
      const gateway = yield* FakeGateway.make({
        status: () => status,
        onMessage: () => {
          status = 503
          return [{ close: 1001 }]
        }
      })
      const held = yield* hold({ url: gateway.url, backOff: Schedule.recurs(3) }, ["hello"])
      assert.include(failureOf(held), "the gateway answers 503: not you")
      assert.strictEqual(gateway.handshakes.length, 4)
    })
  )
})

const interrupt = { is: "interrupt" } as const

describe("a conversation with a person", () => {
  it.scopedLive("goes on taking lines during a turn, which Ctrl-C interrupts; without one it ends the client", () =>
    Effect.gen(function* () {
      const gateway = yield* FakeGateway.make({
        onMessage: (content, turnId) =>
          content === "hang" ? saying(turnId, "well").slice(0, 3) : echo(content, turnId)
      })
      const held = yield* hold(
        { url: gateway.url },
        [
          ...["hang", { shown: "well" }, ":read a", { shown: "now" }],
          ...[interrupt, { shown: "the turn was interrupted" }],
          // What is answered after a turn's end shows that the end is there.
          ...["hello", { shown: "echo: hello" }, ":sessions", { shown: "10 events" }, interrupt]
        ],
        true
      )
      assert.deepStrictEqual(
        gateway.requests.map(({ type }) => type),
        ["create_session", "subscribe", "send_message", "read_file", "interrupt_turn", "send_message", "list_sessions"]
      )
      assert.include(held.output, "· the turn was interrupted\n")
      assert.include(held.output, "Go on with --session s_1\n")
      assert.isTrue(Exit.isFailure(held.exit) && failureOf(held) === undefined)
    })
  )
})
