import { assert, describe, it } from "@effect/vitest"
import { Effect, Either, Option, Redacted } from "effect"
import * as Arguments from "../../scripts/chat/Arguments.ts"
import * as Command from "../../scripts/chat/Command.ts"
import * as Requests from "../../scripts/chat/Requests.ts"

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
