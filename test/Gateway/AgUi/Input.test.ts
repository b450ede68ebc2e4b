/** Inputs of runs that are wrong, or have what the agent does not take: refused with the member, before anything runs. */
import type { ContentPart } from "@ag-ui/client"
import { assert, describe, expect } from "@effect/vitest"
import { Effect } from "effect"
import { ask, outcome, post } from "../HttpSessions/Fixture.ts"
import { live } from "../Socket/Fixture.ts"
import { clientOf } from "./Fixture.ts"

const user = (content: unknown, others: object = {}) => ({ id: "m", role: "user", content, ...others })

const input = (messages: unknown, others: object = {}) => ({ threadId: "t", runId: "r", messages, ...others })

const text = { type: "text", text: "look" } as const
const data = { type: "data", value: "AA==", mimeType: "image/png" } as const

const media: ReadonlyArray<ContentPart> = [
  { type: "image", source: data },
  { type: "image", source: { type: "url", value: "https://causeway.example/cat.png" } },
  { type: "audio", source: { ...data, mimeType: "audio/wav" } },
  { type: "video", source: { ...data, mimeType: "video/mp4" } },
  { type: "document", source: { ...data, mimeType: "application/pdf" } }
]

describe("An input", () => {
  live("is refused by what is wrong with it, and nothing is made", function* ({ agUi, base }) {
    const resume = (entry: object) => input([], { resume: [entry] })
    const tool = (content: unknown) => ({ id: "m", role: "tool", toolCallId: "c", content })
    const cases: ReadonlyArray<readonly [body: unknown, error: RegExp]> = [
      ["{", /JSON/],
      [{}, /threadId: is missing/],
      [input([user("x")], { threadId: 1 }), /threadId/],
      [input([user("x")], { threadId: { toString: 1 } }), /threadId/],
      [input([user("x")], { threadId: "" }), /threadId: must not be empty/],
      [input([user("x")], { threadId: "t".repeat(257) }), /threadId: has 257 characters; the limit is 256/],
      [input([user("x")], { runId: "" }), /runId: must not be empty/],
      [input(undefined), /messages: is missing/],
      [input("x"), /messages/],
      [input([{ role: "user", content: "x" }]), /messages\[0\]\.id: is missing/],
      [input([user("x", { id: "" })]), /messages\[0\]\.id: must not be empty/],
      [input([user("x", { role: "robot" })]), /messages\[0\]\.role/],
      [input([user("")]), /messages\[0\]\.content: must not be empty/],
      [input([user(undefined)]), /messages\[0\]\.content: must not be empty/],
      [input([user([])]), /messages\[0\]\.content: must not be empty/],
      [input([user({ text: "x" })]), /messages\[0\]\.content: must be text/],
      [input([user([text, { type: "text" }])]), /messages\[0\]\.content\[1\]: must be text/],
      [input([user([{ type: "text", text: { a: 1 } }])]), /messages\[0\]\.content\[0\]: must be text/],
      // As clients before 1.0 sent files.
      [
        input([user([text, { type: "binary", mimeType: "a/b", data: "" }])]),
        /messages\[0\]\.content\[1\]: must be text/
      ],
      [input([tool("x")]), /messages\[0\]\.toolCallId: there is no call "c"/],
      [input([tool([text, media[0]])]), /messages\[0\]\.content\[1\]: must be text/],
      [input([{ ...tool("x"), toolCallId: undefined }]), /messages\[0\]\.toolCallId: is missing/],
      [input([]), /runId: is unknown, and there is no new message/],
      [resume({ interruptId: "q", status: "maybe" }), /resume\[0\]\.status/],
      [resume({ status: "resolved" }), /resume\[0\]\.interruptId: is missing/],
      [input([user("x")], { tools: {} }), /tools/]
    ]
    for (const [body, error] of cases) {
      expect(outcome(yield* post(`${agUi}/echo`, body)), JSON.stringify(body)).toEqual({
        status: 400,
        error: expect.stringMatching(error)
      })
    }
    // The agent has not asked.
    const unasked = yield* post(`${agUi}/echo`, resume({ interruptId: "q", status: "resolved" }))
    assert.strictEqual(unasked.status, 409)
    assert.deepStrictEqual((yield* ask(base)).json.sessions, [])
  })

  live("of the official client with files or images is refused by the part", function* ({ agUi, base }) {
    for (const part of media) {
      const client = clientOf(`${agUi}/echo`)
      client.agent.addMessage({ id: "m", role: "user", content: [text, part] })
      const { failure } = yield* client.run({ runId: "r" })
      assert.match(failure ?? "", /HTTP 400.*messages\[0\]\.content\[1\]: must be text/)
    }
    assert.deepStrictEqual((yield* ask(base)).json.sessions, [])
    const client = clientOf(`${agUi}/echo`)
    client.agent.addMessage({ id: "m", role: "user", content: [text, { type: "text", text: " here" }] })
    yield* client.run({ runId: "r" })
    const { content } = client.agent.messages.at(-1) as { readonly content?: unknown }
    assert.strictEqual(content, "echo: look here")
  })

  live("with another message under the id of a run is refused, in either order", function* ({ agUi }) {
    const run = (messages: ReadonlyArray<object>) => post(`${agUi}/echo`, input(messages))
    const [one, other] = yield* Effect.all(
      ["one", "other"].map(id => run([user(id, { id })])),
      { concurrency: 2 }
    )
    expect([one!.status, other!.status].sort()).toEqual([200, 409])
    const [first, second] = one!.status === 200 ? ["one", "other"] : ["other", "one"]
    assert.strictEqual((yield* run([user(first, { id: first })])).status, 200)
    expect(outcome(yield* run([user(second, { id: second })]))).toEqual({
      status: 409,
      error: "messages: the run was requested with another message"
    })
  })
})
