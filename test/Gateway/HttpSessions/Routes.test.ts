/** Sessions over HTTP: each route, and what is refused. */

import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { ErrorCode } from "../../../src/Gateway/Protocol/Codes.ts"
import * as Limits from "../../../src/Gateway/Protocol/Limits.ts"
import { Refused } from "../../../src/Gateway/Requests.ts"
import { errorOf } from "../../../src/Gateway/Streams/Errors.ts"
import { statusOf } from "../../../src/Http/ApiError.ts"
import { objectLimits } from "../../../src/Http/Contract.ts"
import { live } from "../Socket/Fixture.ts"
import { ask, create, eventsUntil, outcome, post } from "./Fixture.ts"

const recent = (digits: string, offset = 0) =>
  `${(Date.now() + offset).toString(16).padStart(12, "0")}${digits.padEnd(24, "0")}`

describe("Sessions over HTTP", () => {
  live("a session is created, listed, read, started, stopped and deleted", function* ({ base }) {
    const created = yield* create(base, { title: "First" })
    expect(created).toMatchObject({ tenant: "dev", agentType: "echo", title: "First", state: "inactive" })
    const second = yield* create(base)
    const first = yield* ask(`${base}?limit=1`)
    expect(first.json.sessions.map(({ id }: { id: string }) => id)).toEqual([second.id])
    const rest = yield* ask(`${base}?limit=1&cursor=${first.json.cursor}`)
    expect(rest.json.sessions.map(({ id }: { id: string }) => id)).toEqual([created.id])
    expect((yield* ask(`${base}/${created.id}`)).json).toEqual({ session: created })
    const started = yield* post(`${base}/${created.id}/start`)
    expect(started.json.session.state).toBe("active")
    const stopped = yield* post(`${base}/${created.id}/stop`)
    expect(stopped.json.session.state).toBe("inactive")
    const removed = yield* ask(`${base}/${created.id}`, { method: "DELETE" })
    expect([removed.status, removed.text]).toEqual([204, ""])
    expect(outcome(yield* ask(`${base}/${created.id}`))).toEqual({
      status: 404,
      error: `There is no session "${created.id}"`
    })
  })

  live("sessions are listed by their activity, and by whether they run", function* ({ base }) {
    const [older, newer] = [yield* create(base), yield* create(base)]
    yield* post(`${base}/${older.id}/messages`, { content: "hello" })
    yield* eventsUntil(base, older.id, ({ type }) => type === "turn_completed")
    const ids = (query: string) =>
      Effect.map(ask(`${base}?${query}`), ({ json }) => json.sessions.map(({ id }: { id: string }) => id))
    expect(yield* ids("order=activity")).toEqual([older.id, newer.id])
    expect(yield* ids("order=activity&running=false&waiting=false&failed=false&limit=1")).toEqual([older.id])
    expect(yield* ids("order=activity&running=true")).toEqual([])
    expect(yield* ids("order=created")).toEqual([newer.id, older.id])
    for (const [query, error] of [
      ["order=name", /order: /],
      ["order=activity&running=1", /running: must be true or false/],
      ["running=true", /running: needs the order "activity"/]
    ] as const) {
      expect(outcome(yield* ask(`${base}?${query}`)), query).toEqual({
        status: 400,
        error: expect.stringMatching(error)
      })
    }
  })

  live("a message starts a turn, once for each key", function* ({ base }) {
    const { id } = yield* create(base)
    const key = { "idempotency-key": "m-1" }
    const sent = yield* post(`${base}/${id}/messages`, { content: "hello" }, key)
    expect([sent.status, sent.json]).toEqual([200, { turnId: expect.any(String) }])
    const again = yield* post(`${base}/${id}/messages`, { content: "hello" }, key)
    expect(again.json).toEqual(sent.json)
    expect((yield* post(`${base}/${id}/messages`, { content: "other" }, key)).status).toBe(409)
    const events = yield* eventsUntil(base, id, ({ type }) => type === "turn_completed")
    expect(events.filter(({ type }) => type === "turn_started")).toMatchObject([
      { content: "hello", sub: "dev", clientMessageId: "m-1" }
    ])
    expect(outcome(yield* post(`${base}/${id}/interrupt`))).toMatchObject({ status: 409 })
    expect(outcome(yield* post(`${base}/${id}/answers`, { requestId: "q", answer: 1 }))).toMatchObject({ status: 409 })
  })

  live("a chosen id creates a session once", function* ({ base }) {
    const id = recent("abc")
    const created = yield* post(base, { id, agentType: "echo", title: "One" })
    expect([created.status, created.json.session.id]).toEqual([201, id])
    const again = yield* post(base, { id, agentType: "other" })
    expect([again.status, again.json]).toEqual([200, created.json])
    const many = yield* Effect.replicateEffect(post(base, { id: recent("def"), agentType: "echo" }), 8, {
      concurrency: "unbounded"
    })
    expect(many.map(({ status }) => status).sort()).toEqual([200, 200, 200, 200, 200, 200, 200, 201])
    expect(outcome(yield* post(base, { id: recent("0", -120_000), agentType: "echo" }))).toEqual({
      status: 400,
      error: expect.stringMatching(/^id: its first 12 digits must be the time in epoch milliseconds/)
    })
    expect(outcome(yield* post(base, { id: "mine", agentType: "echo" }))).toEqual({
      status: 400,
      error: "Invalid request: id: must be 36 digits of 0-9 and a-f"
    })
    yield* ask(`${base}/${id}`, { method: "DELETE" })
    const next = yield* post(base, { id, agentType: "echo" })
    expect(next.status).toBe(201)
    expect(next.json.session.epoch).not.toBe(created.json.session.epoch)
  })

  live("input is checked before anything runs, and no secret is in an error", function* ({ base }) {
    const { id } = yield* create(base)
    const secret = "s3cr3t"
    const cases: ReadonlyArray<readonly [string, unknown, number, RegExp]> = [
      [base, {}, 400, /agentType: is missing/],
      [base, undefined, 400, /agentType: is missing/],
      [base, { agentType: "echo", enviroment: {} }, 400, /enviroment/],
      [base, { agentType: "echo", secrets: secret }, 400, /^Invalid request: secrets: must be an object of texts/],
      [base, { agentType: "echo", secrets: { A: [secret] } }, 400, /secrets\.A: must be text/],
      [base, `{"agentType":"echo","secrets":{"A":"${secret}"}`, 400, /^Invalid request body: it is not JSON$/],
      [base, `"${secret}"`, 400, /it must be a JSON object/],
      [base, '{"agentType":"echo","title":"\\ud800"}', 400, /title: must be Unicode/],
      [`${base}/${id}/messages`, { content: "" }, 400, /content: must not be empty/],
      [`${base}/${id}/messages`, { content: 1 }, 400, /content/],
      [`${base}/${id}/answers`, { requestId: "q" }, 400, /answer/],
      [`${base}/${id}/interrupt`, { turnId: "" }, 400, /turnId: must not be empty/],
      [`${base}/a%20b/stop`, undefined, 400, /id: must be 1 to 128 letters/],
      [`${base}/absent/stop`, undefined, 404, /There is no session "absent"/],
      [base, `{"agentType":"${"x".repeat(1024 * 1024)}"}`, 413, /The request body has \d+ bytes; the limit is 1048576/],
      [base, `{"a":${"[".repeat(300)}${"]".repeat(300)}}`, 413, /nested more than 257 levels/],
      [base, `{"a":[${"0,".repeat(70_000)}0]}`, 413, /more than 65536 members/]
    ]
    for (const [url, body, status, error] of cases) {
      const answered = outcome(yield* post(url, body))
      expect(answered, `${url} ${String(JSON.stringify(body)).slice(0, 80)}`).toEqual({
        status,
        error: expect.stringMatching(error)
      })
      expect(answered.error).not.toContain(secret)
    }
    const long = yield* post(`${base}/${id}/messages`, { content: "x" }, { "idempotency-key": "k".repeat(257) })
    expect(outcome(long)).toEqual({ status: 400, error: expect.stringMatching(/has 257 characters; the limit is 256/) })
    const asText = yield* post(`${base}/${id}/messages`, '{"content":"x"}', { "content-type": "text/plain" })
    expect(asText.status).toBe(415)
    for (const limit of ["0", "201", "x", "1e2"]) {
      expect(outcome(yield* ask(`${base}?limit=${limit}`)), limit).toEqual({
        status: 400,
        error: expect.stringMatching(/limit: must be a whole number from 1 to 200/)
      })
    }
    expect((yield* ask(`${base}?cursor=zz`)).status).toBe(400)
    expect((yield* ask(base, { method: "PUT" })).status).toBe(405)
  })

  live("the conversation is that of all events, and is not sent again while it is the same", function* ({ base }) {
    const { id } = yield* create(base)
    yield* post(`${base}/${id}/messages`, { content: "hello" })
    yield* eventsUntil(base, id, ({ type }) => type === "turn_completed")
    yield* post(`${base}/${id}/stop`)
    const read = yield* ask(`${base}/${id}/conversation`)
    expect([read.status, JSON.parse(read.text)]).toEqual([
      200,
      expect.objectContaining({ seq: expect.any(Number), epoch: expect.any(String) })
    ])
    expect(read.text).toContain("hello")
    const etag = read.headers.get("etag")!
    const again = yield* ask(`${base}/${id}/conversation`, { headers: { "if-none-match": etag } })
    expect([again.status, again.text, again.headers.get("etag")]).toEqual([304, "", etag])
    yield* post(`${base}/${id}/start`)
    const changed = yield* ask(`${base}/${id}/conversation`, { headers: { "if-none-match": etag } })
    expect(changed.status).toBe(200)
    expect(changed.headers.get("etag")).not.toBe(etag)
    expect((yield* ask(`${base}/absent/conversation`)).status).toBe(404)
  })

  live("without tokens, pages of other origins can neither act nor read", function* ({ base, port }) {
    const { id } = yield* create(base)
    const foreign = { origin: "https://evil.example.com" }
    const refused = { status: 403, error: "This origin may not connect" }
    // Such a request of a page needs no preflight.
    expect(outcome(yield* post(`${base}/${id}/start`, undefined, foreign))).toEqual(refused)
    expect(outcome(yield* ask(`${base}/${id}/events`, { headers: foreign }))).toEqual(refused)
    // Nor one of a name that was bound to this machine's address, with any header.
    const rebound = { ...foreign, authorization: "Bearer any" }
    expect(outcome(yield* post(`${base}/${id}/start`, undefined, rebound))).toEqual(refused)
    expect((yield* ask(`${base}/${id}`)).json.session.state).toBe("inactive")
    const own = yield* ask(`${base}/${id}`, { headers: { origin: `http://127.0.0.1:${port}` } })
    expect(own.status).toBe(200)
  })

  live("the limits of bodies are those of frames", function* () {
    expect(objectLimits).toEqual({ bytes: Limits.frameBytes, levels: Limits.jsonDepth, members: Limits.jsonMembers })
    yield* Effect.void
  })
})

/** The status of a code, and that of a failure whose request may succeed later. */
const statuses: Readonly<Record<ErrorCode, readonly [final: number, retryable: number]>> = {
  bad_request: [400, 400],
  unauthorized: [401, 401],
  forbidden: [403, 403],
  not_found: [404, 404],
  conflict: [409, 503],
  too_large: [413, 413],
  rate_limited: [503, 503],
  session_not_active: [409, 409],
  upstream_unavailable: [503, 503],
  upstream_error: [502, 502],
  timeout: [504, 504],
  inference_unavailable: [503, 503],
  internal: [500, 503]
}

it("each code has a status, and what may succeed later says when", () => {
  for (const code of ErrorCode.literals) {
    for (const retryable of [false, true]) {
      const error = errorOf(new Refused({ code, message: "why", retryable }))
      expect([code, statusOf(error), error.error, error.headers]).toEqual([
        code,
        statuses[code][retryable ? 1 : 0],
        "why",
        retryable ? { "retry-after": "1" } : {}
      ])
    }
  }
})
