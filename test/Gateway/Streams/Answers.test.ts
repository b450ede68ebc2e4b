/** Two persons who answer the same request at once, over any two protocols: one answer counts. */
import { assert, describe, expect } from "@effect/vitest"
import { Effect } from "effect"
import { ask, eventsUntil, post } from "../HttpSessions/Fixture.ts"
import { connect, live } from "../Socket/Fixture.ts"

/** A request for approval, and where it is. */
interface Asked {
  readonly urls: { readonly url: string; readonly base: string; readonly agUi: string; readonly chats: string }
  readonly threadId: string
  readonly sessionId: string
  readonly requestId: string
}

/** Answers the request. Returns what went wrong, if anything did. */
type Answerer = (asked: Asked, approved: boolean) => Effect.Effect<string | undefined>

interface Part {
  readonly state?: string
  readonly approval?: { readonly id: string }
}

const agUi: Answerer = ({ requestId: interruptId, threadId, urls }, approved) =>
  Effect.map(
    post(`${urls.agUi}/echo`, {
      ...{ threadId, runId: crypto.randomUUID(), messages: [] },
      resume: [{ interruptId, status: "resolved", payload: { approved } }]
    }),
    ({ json, status }) => (status === 200 ? undefined : `${status} ${json.error}`)
  )

const chat: Answerer = ({ threadId: id, urls }, approved) =>
  Effect.gen(function* () {
    const messages = (yield* ask(`${urls.chats}/${id}/messages`)).events as unknown as ReadonlyArray<{
      readonly parts: ReadonlyArray<Part>
    }>
    const answered = messages.map(message => ({
      ...message,
      parts: message.parts.map(part =>
        part.state === "approval-requested"
          ? { ...part, state: "approval-responded", approval: { id: part.approval!.id, approved } }
          : part
      )
    }))
    const { json, status } = yield* post(urls.chats, { id, messages: answered })
    return status === 200 ? undefined : `${status} ${json.error}`
  })

const http: Answerer = ({ requestId, sessionId, urls }, approved) =>
  Effect.map(post(`${urls.base}/${sessionId}/answers`, { requestId, answer: approved }), ({ json, status }) =>
    status === 204 ? undefined : `${status} ${json.error}`
  )

const socket: Answerer = ({ requestId, sessionId, urls }, approved) =>
  Effect.gen(function* () {
    const client = yield* Effect.orDie(connect(urls.url))
    const answer = yield* client.ask({ type: "answer", sessionId, requestId, answer: approved })
    return answer.type === "error" ? `${answer.error.code} ${answer.error.message}` : undefined
  }).pipe(Effect.scoped)

const protocols: ReadonlyArray<readonly [string, Answerer]> = Object.entries({ agUi, chat, http, socket })

const pairs = protocols.flatMap(([one, first], at) =>
  protocols.slice(at).map(([other, second]) => ({ name: `${one} and ${other}`, first, second }))
)

describe("Two answers to one request", () => {
  live("are not both taken, whichever protocols they come by", function* ({ agUi, base, chats, url }) {
    for (const { first, name, second } of pairs) {
      const threadId = name.replaceAll(" ", "-")
      const messages = [{ id: "m", role: "user", content: "/approve" }]
      const { text } = yield* post(`${agUi}/echo`, { threadId, runId: "run-1", messages })
      const requestId = /"interrupts":\[\{"id":"([^"]+)"/.exec(text)![1]!
      const { sessions } = (yield* ask(base)).json
      const asked = { urls: { url, base, agUi, chats }, threadId, sessionId: sessions[0]!.id, requestId }
      const outcomes = yield* Effect.all([first(asked, true), second(asked, false)], { concurrency: 2 })
      const refused = outcomes.filter(outcome => outcome !== undefined)
      assert.lengthOf(refused, 1, `${name}: ${JSON.stringify(outcomes)}`)
      expect(refused[0], name).toMatch(
        /^(?:409|conflict) .*(?:was answered before|was (?:granted|denied) before|waits)/
      )
      const events = yield* eventsUntil(base, asked.sessionId, ({ type }) => type === "turn_completed")
      const resolved = events.filter(event => event.type === "approval_resolved")
      expect(resolved, name).toMatchObject([{ requestId, approved: outcomes[0] === undefined }])
    }
  })

  live("by the same run are one, and by another client or with another content a conflict", function* (gateway) {
    const { agUi, base } = gateway
    const user = { id: "m", role: "user", content: "/approve" }
    const { text } = yield* post(`${agUi}/echo`, { threadId: "t", runId: "run-1", messages: [user] })
    const interruptId = /"interrupts":\[\{"id":"([^"]+)"/.exec(text)![1]!
    const resume = (runId: string, approved: boolean) =>
      post(`${agUi}/echo`, {
        ...{ threadId: "t", runId, messages: [user] },
        resume: [{ interruptId, status: "resolved", payload: { approved } }]
      })
    const both = yield* Effect.all([resume("run-2", true), resume("run-2", true)], { concurrency: 2 })
    assert.deepStrictEqual(
      both.map(({ status }) => status),
      [200, 200]
    )
    assert.strictEqual((yield* resume("run-2", true)).status, 200)
    assert.strictEqual((yield* resume("run-2", false)).status, 409)
    assert.strictEqual((yield* resume("run-3", true)).status, 409)
    const { sessions } = (yield* ask(base)).json
    const { events } = yield* ask(`${base}/${sessions[0]!.id}/events`)
    assert.lengthOf(
      events.filter(({ type }) => type === "approval_resolved"),
      1
    )
  })

  live("of a wrong form are refused before anything is sent", function* ({ agUi }) {
    const user = { id: "m", role: "user", content: "/approve" }
    const { text } = yield* post(`${agUi}/echo`, { threadId: "t", runId: "run-1", messages: [user] })
    const interruptId = /"interrupts":\[\{"id":"([^"]+)"/.exec(text)![1]!
    for (const payload of [null, "yes", {}, { approved: "yes" }, { approved: true, reason: 1 }]) {
      const { json, status } = yield* post(`${agUi}/echo`, {
        ...{ threadId: "t", runId: "run-2", messages: [user] },
        resume: [{ interruptId, status: "resolved", payload }]
      })
      expect([status, json?.error], JSON.stringify(payload)).toEqual([
        400,
        expect.stringMatching(/resume\[0\]\.payload/)
      ])
    }
  })
})
