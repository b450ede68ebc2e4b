import { assert, describe, it } from "@effect/vitest"
import { Either } from "effect"
import * as Command from "../../../src/CommandLine/Chat/Commands.ts"
import * as Requests from "../../../src/CommandLine/Chat/State.ts"

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
    [":stop now", ":stop takes no argument."],
    [":dance", "There is no command :dance."],
    [":", "There is no command :."]
  ]
  it.each(cases)("%j", (line, meaning) => {
    const parsed = Command.parse(line)
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
