import { assert, describe, it } from "@effect/vitest"
import { Either, FastCheck as fc } from "effect"
import * as Command from "../../../src/CommandLine/Chat/Commands.ts"
import * as Screen from "../../../src/CommandLine/Chat/Screen.ts"
import * as Requests from "../../../src/CommandLine/Chat/State.ts"
import { clean, cleanJson, clip, colored, plain } from "../../../src/CommandLine/Terminal/Text.ts"
import { type EventBody, eventTypes } from "../../../src/Gateway/Protocol.ts"
import { times } from "../../Scale.ts"

/** All that is written for events one after the other. */
const written = (events: ReadonlyArray<EventBody>, paint = plain): string => {
  let screen = Screen.empty
  let all = ""
  for (const event of events) {
    const [next, text] = Screen.draw(screen, event, paint)
    screen = next
    all += text
  }
  return all
}

const turnId = "t"

/** Each type of event, and what a person sees of it. */
const cases: ReadonlyArray<readonly [EventBody, string]> = [
  [{ type: "session_state", state: "active" }, "· session active\n"],
  [{ type: "session_state", state: "error", reason: "out of memory" }, "· session error (out of memory)\n"],
  [{ type: "turn_started", turnId }, ""],
  [{ type: "turn_started", turnId, content: "What\nis \u001b[1mthis?", sub: "bob" }, "> What\n  is ␛[1mthis?\n"],
  [{ type: "turn_completed", turnId }, ""],
  [
    { type: "turn_errored", turnId, code: "busy", message: "no room", retryable: true },
    "✗ the turn failed: no room (busy). Sending it again may help.\n"
  ],
  [{ type: "turn_interrupted", turnId, reason: "asked" }, "· the turn was interrupted (asked)\n"],
  [{ type: "text_start", turnId, messageId: "m" }, ""],
  [{ type: "text_delta", turnId, messageId: "m", text: "hello" }, "hello"],
  [{ type: "text_delta", text: "of no message" }, "of no message"],
  [{ type: "text_end", turnId, messageId: "m", text: "as a whole" }, "as a whole\n"],
  [{ type: "text_end", turnId, messageId: "m" }, ""],
  [{ type: "thinking_start", turnId, thinkingId: "h" }, ""],
  [{ type: "thinking_delta", turnId, thinkingId: "h", text: "hm" }, "hm"],
  [{ type: "thinking_end", turnId, thinkingId: "h", text: "hm." }, "hm.\n"],
  [{ type: "tool_call_start", turnId, callId: "c", name: "write" }, ""],
  [{ type: "tool_call_delta", turnId, callId: "c", text: '{"pa' }, ""],
  [{ type: "tool_call", turnId, callId: "c", name: "write", args: { path: "a" } }, '→ write {"path":"a"}\n'],
  [{ type: "tool_call", turnId, callId: "c", name: "look" }, "→ look\n"],
  [{ type: "tool_progress", turnId, callId: "c", progress: 0.426, message: "reading" }, "  43 % reading\n"],
  [{ type: "tool_result", turnId, callId: "c", result: "two\nlines" }, "← two\n  lines\n"],
  [{ type: "tool_error", turnId, callId: "c", code: "ENOENT", message: "no file" }, "← no file (ENOENT)\n"],
  [
    { type: "question_requested", turnId, requestId: "q", question: "Which?", options: ["red", { rgb: 255 }] },
    '? Which?\n  1. red\n  2. {"rgb":255}\n'
  ],
  [{ type: "question_resolved", turnId, requestId: "q", answer: "red" }, "· answered: red\n"],
  [
    { type: "approval_requested", turnId, requestId: "a", action: "run", description: "rm -r b", details: { n: 1 } },
    '? May the agent do this? run: rm -r b\n  {"n":1}\n  Answer yes or no.\n'
  ],
  [{ type: "approval_resolved", turnId, requestId: "a", approved: true }, "· approved\n"],
  [{ type: "approval_resolved", turnId, requestId: "a", approved: false, reason: "no" }, "· denied (no)\n"],
  [{ type: "terminal_opened", turnId, terminalId: "x", command: "make", cwd: "/src" }, "$ make (/src)\n"],
  [{ type: "terminal_output", turnId, terminalId: "x", stream: "stdout", text: "ok\n" }, "ok\n"],
  [{ type: "terminal_exited", turnId, terminalId: "x", exitCode: 2 }, "· the terminal exited with 2\n"],
  [{ type: "terminal_exited", turnId, terminalId: "x", signal: "SIGKILL" }, "· the terminal exited with SIGKILL\n"],
  [
    { type: "file_changed", turnId, change: "created", path: "a.md", iteration: 1, size: 1234 },
    "+ a.md (iteration 1, 1,234 bytes)\n"
  ],
  [{ type: "file_changed", turnId, change: "modified", path: "a.md" }, "~ a.md\n"],
  [{ type: "file_changed", turnId, change: "deleted", path: "a.md" }, "- a.md\n"],
  [{ type: "file_changed", turnId, change: "renamed", path: "b.md", previousPath: "a.md" }, "> a.md → b.md\n"],
  [{ type: "plan_updated", turnId, plan: ["think", "act"] }, '· plan: ["think","act"]\n'],
  [{ type: "step_started", turnId, stepId: "s", title: "Think" }, "· step: Think\n"],
  [{ type: "step_completed", turnId, stepId: "s" }, "· step done: s\n"],
  [{ type: "subagent_started", turnId, subagentId: "n", agentType: "cook", task: "tea" }, "· agent cook starts: tea\n"],
  [{ type: "subagent_completed", turnId, subagentId: "n", result: "hot" }, "· agent n is done: hot\n"],
  [{ type: "artifact_created", turnId, artifactId: "r", name: "tea.md", uri: "u:1" }, "+ artifact tea.md (u:1)\n"],
  [{ type: "checkpoint_created", turnId, checkpointId: "k" }, "· checkpoint k\n"],
  [{ type: "state_snapshot", turnId, state: { cups: 1 } }, '· state: {"cups":1}\n'],
  [{ type: "state_delta", turnId, patch: [] }, "· state changes: []\n"],
  [
    { type: "usage_update", turnId, inputTokens: 1200, outputTokens: 3, costUsd: 0.01, model: "m-1" },
    "· tokens: 1,200 in, 3 out, $0.01, m-1\n"
  ],
  [
    { type: "usage_context", turnId, used: 500, limit: 200_000, percent: 0.25 },
    "· context: 500 of 200,000 tokens (0.25 %)\n"
  ],
  [
    { type: "rate_limited", turnId, retryAfterMs: 1500, message: "patience" },
    "· the agent must wait, for 1.5 s (patience)\n"
  ],
  [{ type: "error", code: "oom", message: "no memory", retryable: false }, "✗ no memory (oom)\n"]
]

describe("an event", () => {
  it.each(cases)("%j", (event, text) => {
    assert.strictEqual(written([event]), text)
  })

  it("of every type has its place in the table", () => {
    assert.deepStrictEqual(new Set(cases.map(([{ type }]) => type)), new Set(eventTypes))
  })
})

const delta = (messageId: string, text: string): EventBody => ({ type: "text_delta", turnId, messageId, text })

describe("text in pieces", () => {
  it("is the same on the screen however it is cut", () => {
    const pieces = fc.array(fc.string({ unit: "grapheme", maxLength: 12 }), { maxLength: 20 })
    fc.assert(
      fc.property(pieces, pieces => {
        const whole = pieces.join("")
        const end: EventBody = { type: "text_end", turnId, messageId: "m", text: whole }
        const streamed = written([...pieces.map(piece => delta("m", piece)), end])
        assert.strictEqual(streamed, written([delta("m", whole), end]))
        assert.isTrue(streamed === "" || streamed.endsWith("\n"))
      }),
      { numRuns: times(200) }
    )
  })

  it("gets a line of its own where another text or event comes between", () => {
    const output = written([
      delta("m", "one "),
      { type: "thinking_delta", turnId, thinkingId: "h", text: "hm" },
      delta("m", "two\n"),
      { type: "file_changed", change: "deleted", path: "a" },
      delta("m", "three"),
      { type: "text_end", turnId, messageId: "m", text: "one two\nthree" },
      { type: "turn_completed", turnId }
    ])
    assert.strictEqual(output, "one \nhm\ntwo\n- a\nthree\n")
  })

  it("is broken off at the end of its turn", () => {
    assert.strictEqual(written([delta("m", "half"), { type: "turn_completed", turnId }]), "half\n")
  })
})

/** Members that are one of a few words, which the schema sees to. */
const fixed = new Set(["type", "change", "state"])

describe("text from elsewhere", () => {
  it("cannot move the cursor, change the terminal or hide what it says", () => {
    assert.strictEqual(clean("a\tb\r\nc"), "a\tb\nc")
    assert.strictEqual(clean("\u001b[2J\u0007\u007f\u009b\u202e"), "␛[2J␇␡<U+009B><U+202E>")
    const event = fc.constantFrom(...cases.map(([event]) => event))
    const text = fc.string({ unit: fc.constantFrom("\u001b", "\r", "\u009b", "\u202e", "a", "\n", "\b") })
    fc.assert(
      fc.property(event, text, (event, text) => {
        const said = JSON.parse(JSON.stringify(event), (name, value: unknown) =>
          typeof value === "string" && !fixed.has(name) ? text : value
        )
        assert.notMatch(written([said]), /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202e]/)
      }),
      { numRuns: times(500) }
    )
  })

  it("shows characters that are not seen, and keeps those of emoji and of scripts", () => {
    const approval: EventBody = {
      type: "approval_requested",
      requestId: "a",
      action: "run",
      description: "rm -r /tm\u200bp"
    }
    assert.include(written([approval]), "run: rm -r /tm<U+200B>p\n")
    const smuggled: EventBody = { type: "tool_call", callId: "c", name: "run", args: { command: "ls\u{e0072}\u200d" } }
    assert.strictEqual(written([smuggled]), '→ run {"command":"ls<U+E0072><U+200D>"}\n')
    const kept = "\ud83d\udc69\u200d\ud83d\udcbb \u0645\u06cc\u200c\u062e"
    assert.strictEqual(
      written([{ ...approval, description: kept }]),
      `? May the agent do this? run: ${kept}\n  Answer yes or no.\n`
    )
    // A delta may end within an emoji.
    assert.strictEqual(
      written(["\ud83d\udc69", "\u200d", "\ud83d\udcbb"].map(text => delta("m", text))),
      "\ud83d\udc69\u200d\ud83d\udcbb"
    )
    assert.strictEqual(written([delta("m", "a\u200bb")]), "a<U+200B>b")
  })

  it("shows where a line is written over, and keeps a name in one line", () => {
    assert.strictEqual(clean("rm -r /\rls\r\n"), "rm -r /␍ls\n")
    assert.strictEqual(cleanJson('{"a":1,\r"b\u200b":2}'), '{"a":1,"b\\u200b":2}')
    const file: EventBody = { type: "file_changed", change: "created", path: "a\n+ b" }
    assert.strictEqual(written([file]), "+ a␊+ b\n")
  })

  it("is shown in part where it is long, and cut between characters", () => {
    assert.strictEqual(clip("short"), "short")
    assert.match(clip("x".repeat(5000)), /^x{2000}… \(5,000 characters\)$/)
    assert.match(clip("\n".repeat(50)), /^\n{19}… \(50 characters\)$/)
    assert.isTrue(clip(`${"x".repeat(1999)}😀${"x".repeat(10)}`).startsWith(`${"x".repeat(1999)}…`))
  })

  it("has colors of the client's own only", () => {
    assert.strictEqual(
      written([{ type: "tool_error", callId: "c", message: "no" }], colored),
      "\u001b[31m← no\u001b[39m\n"
    )
    const thinking: EventBody = { type: "thinking_delta", thinkingId: "h", text: "hm" }
    assert.strictEqual(written([thinking], colored), "\u001b[2mhm\u001b[22m")
  })
})

describe("a line", () => {
  const lines: ReadonlyArray<readonly [string, Command.Command | string]> = [
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
  it.each(lines)("%j", (line, meaning) => {
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
