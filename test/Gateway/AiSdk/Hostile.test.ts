/** Chats of clients that are wrong, slow, or of other tenants, by raw requests and frames. */
import { assert, describe, expect } from "@effect/vitest"
import { Effect, Option, Redacted } from "effect"
import { closeCodes } from "../../../src/Gateway/Protocol/Codes.ts"
import { requestsInFlight } from "../../../src/Gateway/Protocol/Limits.ts"
import { pass } from "../../../src/Simulator/Testing/Time.ts"
import { ask, outcome, post } from "../HttpSessions/Fixture.ts"
import { connect, live, timed } from "../Socket/Fixture.ts"
import { secret, token } from "../survival/Token.ts"

const message = (id: string, text: string) => ({ id, role: "user", parts: [{ type: "text", text }] })

const submission = (chat: string, ...messages: ReadonlyArray<object>) => ({
  ...{ id: chat, trigger: "submit-message" },
  messages
})

/** A connection that sends frames, with what has come. */
const open = (url: string) =>
  Effect.map(connect(`${url.replace("http", "ws")}/ws`), client => {
    const frames = client.frames as unknown as ReadonlyArray<Readonly<Record<string, unknown>>>
    return {
      ...client,
      sent: frames,
      say: (frame: object) => client.send(JSON.stringify({ headers: {}, body: {}, ...frame })),
      /** Waits for a frame of a request. */
      frame: (requestId: string, type: string) =>
        client.until(frame => Reflect.get(frame, "requestId") === requestId && (frame.type as string) === type)
    }
  })

describe("chats over HTTP", () => {
  live("what is wrong with a request is said, and nothing runs", function* ({ base, chats }) {
    const file = { type: "file", mediaType: "image/png", url: "data:," }
    const odd = { toString: 1 }
    const cases: ReadonlyArray<readonly [body: unknown, status: number, error: RegExp]> = [
      [{}, 400, /id: is missing/],
      [submission("c"), 400, /messages: must not be empty/],
      [submission("", message("m", "x")), 400, /id: must not be empty/],
      [submission("c".repeat(257), message("m", "x")), 400, /id: has 257 characters/],
      [submission("c", message("m".repeat(257), "x")), 400, /id: has 257 characters/],
      [submission("c", message("m", "")), 400, /messages\[0\]: must have a text/],
      [submission("c", { ...message("m", "x"), role: "system" }), 400, /messages\[0\]\.role/],
      [submission("c", { ...message("m", "x"), role: "tool" }), 400, /role/],
      [submission("c", { ...message("m", "x"), parts: [{}] }), 400, /messages\[0\]\.parts\[0\]\.type: is missing/],
      [submission("c", message("a", "x"), { ...message("m", "x"), parts: [file] }), 400, /messages\[1\]\.parts\[0\]/],
      [submission("c", message("m", "x"), { ...message("n", "x"), parts: [{ type: odd }] }), 400, /parts\[0\]\.type: /],
      [submission("c", message("a", "x"), message("m", "")), 400, /messages\[1\]: must have a text/],
      [submission("c", { ...message("m", "x"), role: "assistant" }), 409, /The message "m" is not known/],
      [`{"id":"c","messages":${"[".repeat(300)}${"]".repeat(300)}}`, 413, /nested more than/],
      [submission("0".repeat(36), message("m", "x")), 404, /There is no session/]
    ]
    for (const [body, status, error] of cases) {
      expect(outcome(yield* post(chats, body)), JSON.stringify(body).slice(0, 80)).toEqual({
        status,
        error: expect.stringMatching(error)
      })
    }
    const unsent = { ...submission("c", message("m", "x")), trigger: "regenerate-message" }
    const sent = yield* post(chats, unsent)
    assert.isTrue(sent.text.endsWith("data: [DONE]\n\n"), sent.text)
    assert.strictEqual(sent.headers.get("x-vercel-ai-ui-message-stream"), "v1")
    const other = yield* post(chats.replace("echo", "other"), submission("c", message("n", "x")))
    expect(outcome(other)).toEqual({ status: 409, error: expect.stringMatching(/an agent of another type/) })
    assert.strictEqual((yield* ask(`${chats.replace("echo", "other")}/c/stream`)).status, 409)
    const { json } = yield* ask(base)
    yield* Effect.forEach(json.sessions, ({ id }) => ask(`${base}/${id}`, { method: "DELETE" }))
    assert.strictEqual((yield* post(chats, submission("c", message("o", "x")))).status, 404)
    assert.strictEqual((yield* ask(`${chats}/c/stream`)).status, 204)
    assert.strictEqual((yield* ask(`${chats}/c/messages`)).status, 404)
  })

  const authentication = { secret: Option.some(Redacted.make(secret)) }

  live("the same id in two tenants is two chats", { authentication }, function* ({ chats }) {
    const bearer = (tenant: string) => Effect.map(token(tenant), value => ({ authorization: `Bearer ${value}` }))
    const [acme, other] = [yield* bearer("acme"), yield* bearer("other")]
    assert.strictEqual((yield* post(chats, submission("c", message("m", "secret")), acme)).status, 200)
    const read = (headers: { readonly authorization: string }) => ask(`${chats}/c/messages`, { headers })
    assert.deepStrictEqual((yield* read(other)).events, [])
    assert.strictEqual((yield* read(acme)).events.length, 2)
    assert.strictEqual((yield* ask(`${chats}/c/messages`)).status, 401)
  })
})

describe("chats over a WebSocket", () => {
  live("number the chunks of each request from 0, and answer what is wrong", function* ({ chats }) {
    const client = yield* open(chats)
    yield* client.say({ type: "send", requestId: "1", ...submission("a", message("m", "one")) })
    yield* client.say({ type: "send", requestId: "2", ...submission("b", message("m", "two")) })
    yield* Effect.all([client.frame("1", "end"), client.frame("2", "end")])
    for (const requestId of ["1", "2"]) {
      const frames = client.sent.filter(frame => frame.requestId === requestId)
      assert.strictEqual(frames[0]?.type, "start")
      assert.strictEqual(frames.at(-1)?.type, "end")
      const numbers = frames.slice(1, -1).map(({ sequence }) => sequence)
      assert.deepStrictEqual(numbers, [...numbers.keys()])
      assert.isAbove(numbers.length, 3)
    }
    yield* client.say({ type: "resume", requestId: "3", id: "a" })
    yield* client.frame("3", "no-active")
    yield* client.say({ type: "send", requestId: "4", id: "a", messages: "none" })
    yield* client.frame("4", "error")
    yield* client.say({ type: "abort", requestId: "unknown" })
    for (const [index, type] of ["sing", { toString: 1 }, null, undefined, 7].entries()) {
      yield* client.say({ type, requestId: `odd ${index}` })
      yield* client.frame(`odd ${index}`, "error")
    }
    yield* client.say({ type: { toString: 1 }, requestId: { toString: 1 } })
    yield* client.frame("", "error")
    yield* client.say({ type: "send", requestId: "6", ...submission("a", message("n", "again")) })
    yield* client.frame("6", "end")
    yield* client.send("{")
    assert.deepInclude(yield* client.closed, { code: closeCodes.protocol.code })
  })

  timed("large histories are taken, but not one after the other", function* ({ chats }) {
    const client = yield* open(chats)
    const large = { ...message("old", "x".repeat(15 * 1024 * 1024)), role: "assistant" }
    for (const id of ["1", "2"]) {
      yield* client.say({ type: "send", requestId: id, ...submission("a", large, message(id, "hi")) })
    }
    yield* Effect.all([client.frame("1", "end"), client.frame("2", "error")])
    const { errorText } = client.sent.find(({ type }) => type === "error")!
    expect(errorText).toMatch(/frames in a second/)
    assert.isTrue(client.isOpen())
  })

  timed("requests in progress are limited, and a stop meets its own turn alone", function* ({ chats }) {
    const client = yield* open(chats)
    yield* client.say({ type: "send", requestId: "s", ...submission("a", message("m", "/hang")) })
    yield* client.frame("s", "chunk")
    for (let i = 1; i <= requestsInFlight; i++) yield* client.say({ type: "resume", requestId: `r${i}`, id: "a" })
    yield* client.frame(`r${requestsInFlight}`, "error")
    yield* client.frame(`r${requestsInFlight - 1}`, "chunk")
    assert.isTrue(client.isOpen())
    yield* client.say({ type: "abort", requestId: "r1" })
    yield* client.say({ type: "resume", requestId: "again", id: "a" })
    yield* client.frame("again", "chunk")
    yield* pass("3 seconds", "1 second")
    assert.isFalse(client.sent.some(({ type }) => type === "end"))
    yield* client.say({ type: "abort", requestId: "again" })
    yield* Effect.raceFirst(Effect.forever(pass("1 second", "1 second")), client.frame("s", "end"))
  })

  timed("a stop waits for a resume at any connection", function* ({ chats }) {
    const [client, other] = yield* Effect.all([open(chats), open(chats)])
    yield* client.say({ type: "send", requestId: "s", ...submission("a", message("m", "/hang")) })
    yield* client.frame("s", "chunk")
    yield* client.say({ type: "abort", requestId: "s" })
    yield* client.say({ type: "abort", requestId: "s" })
    yield* other.say({ type: "resume", requestId: "r", id: "a" })
    yield* other.frame("r", "chunk")
    yield* pass("3 seconds", "1 second")
    assert.isFalse(other.sent.some(({ type }) => type === "end"))
    yield* other.say({ type: "abort", requestId: "r" })
    yield* pass("3 seconds", "1 second")
    yield* other.say({ type: "resume", requestId: "late", id: "a" })
    yield* other.frame("late", "no-active")
  })
})
