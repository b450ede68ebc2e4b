/** The layer in applications of hosts: prefixes, parts, identity, wrapped ports and the gateway, on both servers. */
import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { clientOf, textsOf } from "../Gateway/AgUi/Fixture.ts"
import * as Chats from "../Gateway/AiSdk/Fixture.ts"
import { follow, isDense } from "../Gateway/HttpSessions/DurableClient.ts"
import * as Sessions from "../Gateway/HttpSessions/Fixture.ts"
import { ask, directIdentity, firstFrame, foreign, identity, own, Port, serve } from "./Causeway/Host.ts"

describe.each(["stock", "edge"] as const)("in an application on the %s server", kind => {
  it.scopedLive("each group is served at its path in the api, together with the host's own groups", () =>
    Effect.gen(function* () {
      expect(yield* ask("root", "PUT", `${own}/k`, { value: 1 })).toMatchObject({ status: 200, body: { version: 1 } })
      expect(yield* ask("root", "GET", "/orders/count")).toEqual({ status: 200, body: { count: 1 } })
      expect(yield* ask("root", "GET", "/store/cluster/status")).toMatchObject({ body: { ok: true } })
      expect(yield* ask("", "GET", "/probes/ready")).toEqual({ status: 200, body: { ok: true } })
      expect(yield* ask("", "GET", "/probes/alive")).toEqual({ status: 200, body: { ok: true } })
      expect(yield* ask("", "GET", "/probes/health")).toMatchObject({ status: 200, body: { status: "ok" } })
      const { metrics } = (yield* ask("", "GET", "/internal/api/metrics")).body
      const names = new Set(metrics.map(({ name }: { readonly name: string }) => name))
      expect(names).toContain("http_requests_total")
      expect(names).toContain("change_feed_followers")
      const openApi = (yield* ask("root", "GET", "/docs/openapi.json")).body
      expect(Object.keys(openApi.paths)).toContain("/store/kv/{namespace}/{key}")
      const asyncApi = (yield* ask("root", "GET", "/docs/asyncapi.json")).body
      expect(asyncApi.channels.gateway.address).toBe("/agents/ws")
      expect(asyncApi.channels.changeFeed.address).toBe("/store/changes/ws")
      for (const path of ["/api/v1/kv/n/k", "/kv/n/k", "/health", "/ws"]) {
        expect([path, (yield* ask("root", "GET", path)).status]).toEqual([path, 404])
      }
    }).pipe(Effect.provide(serve(kind)))
  )

  it.scopedLive("each tenant has idempotency keys of its own, and so have those without a tenant", () =>
    Effect.gen(function* () {
      const key = { "idempotency-key": "order 1" }
      const set = (user: string, path: string, value: number) => ask(user, "PUT", `${path}/once`, { value }, key)
      const first = yield* set("anna", own, 1)
      expect(first).toMatchObject({ status: 200, body: { version: 1 } })
      expect(yield* set("other", foreign, 2)).toMatchObject({ status: 200, body: { version: 1, value: 2 } })
      expect(yield* set("root", own, 3)).toMatchObject({ status: 200, body: { version: 2, value: 3 } })
      expect(yield* set("anna", own, 1)).toEqual(first)
      expect((yield* set("anna", own, 2)).status).toBe(422)
      expect((yield* set("anna", foreign, 1)).status).toBe(403)
      expect((yield* set("reader", own, 1)).status).toBe(403)
    }).pipe(Effect.provide(serve(kind)))
  )

  it.scopedLive.each([identity, directIdentity])("an identity names the actor, and limits access: %#", identify =>
    Effect.gen(function* () {
      const set = (user: string, body: object) => ask(user, "PUT", `${own}/k`, body)
      expect(yield* set("anna", { value: 1, actor: "forged" })).toMatchObject({ body: { updatedBy: "anna" } })
      expect(yield* ask("reader", "GET", `${own}/k`)).toMatchObject({ body: { updatedBy: "anna (wrapped)" } })
      expect(yield* set("reader", { value: 2 })).toEqual({ status: 403, body: { error: "Forbidden" } })
      expect(yield* set("stranger", { value: 2 })).toEqual({ status: 401, body: { error: "Sign in" } })
      expect(yield* set("root", { value: 3, actor: "given" })).toMatchObject({ body: { updatedBy: "given" } })
      const operations = [{ op: "delete", namespace: "tenant:acme/x", key: "k" }]
      expect(yield* ask("anna", "POST", "/store/batch", { operations, actor: "forged" })).toMatchObject({ status: 200 })
      expect(yield* set("anna", { value: 4 })).toMatchObject({ status: 200 })
      expect(yield* ask("anna", "DELETE", `${own}/k?actor=forged`)).toMatchObject({ body: { deleted: true } })
      const { changes } = (yield* ask("root", "GET", "/store/changes")).body
      const actors = changes.map(({ actor }: { readonly actor: string }) => actor)
      expect(actors).toEqual(["anna", "given", "anna", "anna", "anna"])
    }).pipe(Effect.provide(serve(kind, identify)))
  )

  it.scopedLive("an identity whose service is unreachable is 503, and a wrong one a defect", () =>
    Effect.gen(function* () {
      expect(yield* ask("late", "GET", `${own}/k`)).toEqual({
        status: 503,
        body: { error: "The users are unreachable" }
      })
      const failed = { status: 500, body: { error: "Internal server error" } }
      expect(yield* ask("nobody", "GET", "/store/changes")).toEqual(failed)
      expect(yield* ask("nobody", "PUT", `${own}/k`, { value: 1 })).toEqual(failed)
    }).pipe(Effect.provide(serve(kind)))
  )

  it.scopedLive("a tenant reaches its own namespaces and changes alone, by every way", () =>
    Effect.gen(function* () {
      for (const key of ["a", "b"]) yield* ask("root", "PUT", `${own}/${key}`, { value: key })
      yield* ask("root", "PUT", `${foreign}/k`, { value: "secret" })
      yield* ask("root", "PUT", "/store/kv/plain/k", { value: "secret" })
      yield* ask("root", "PUT", "/store/kv/tenant%3Aacmes/k", { value: "secret" })
      const forbidden = (reason: string) => ({ status: 403, body: { error: expect.stringContaining(reason) } })
      const refused = forbidden("tenant:acme")
      for (const space of [foreign, "/store/kv/plain", "/store/kv/tenant%3Aacmes", "/store/kv/tenant%3A"]) {
        expect(yield* ask("anna", "GET", `${space}/k`)).toEqual(refused)
        expect(yield* ask("anna", "GET", space)).toEqual(refused)
        expect(yield* ask("anna", "PUT", `${space}/k`, { value: 1 })).toEqual(refused)
        expect(yield* ask("anna", "DELETE", `${space}/k`)).toEqual(refused)
      }
      const operations = [
        { op: "set", namespace: "tenant:acme", key: "k", value: 1 },
        { op: "set", namespace: "tenant:evil", key: "k", value: 1 }
      ]
      const batch = yield* ask("anna", "POST", "/store/batch", { operations })
      expect(batch).toEqual(forbidden("operations[1].namespace"))
      const ownItems = { status: 200, body: { items: [{ key: "a" }, { key: "b" }] } }
      expect(yield* ask("anna", "GET", own)).toMatchObject(ownItems)
      for (const space of [foreign, "/store/kv/plain", "/store/kv/tenant%3Aacmes"]) {
        expect(yield* ask("anna", "DELETE", `${space}?prefix=`)).toEqual(refused)
      }
      const addresses = [
        { namespace: "tenant:acme/x", key: "a" },
        { namespace: "tenant:evil", key: "k" }
      ]
      const read = yield* ask("anna", "POST", "/store/kv/read", { keys: addresses })
      expect(read).toEqual(forbidden("keys[1].namespace"))
      expect(yield* ask("reader", "POST", "/store/kv/read", { keys: addresses.slice(0, 1) })).toMatchObject({
        status: 200,
        body: { items: [{ key: "a" }] }
      })
      const namespaces = [{ namespace: "tenant:acme/x", count: 2 }]
      const tenants = [{ tenant: "acme", namespaces: 1, entries: 2 }]
      const hidden = ["withoutTenant=1", "prefix=tenant%3Aevil", "prefix=tenant%3Aacmes", "prefix=plain"]
      const others = ["kv", "changes", "changes/stream"]
      for (const [path, status, body] of [
        ...["", "?tenant=acme", "?prefix=tenant%3Aacme"].map(query => [`kv${query}`, 200, { namespaces }] as const),
        ...hidden.map(query => [`kv?${query}`, 200, { namespaces: [] }] as const),
        ["kv?tenant=acme&withoutTenant=1", 400, { error: "tenant and withoutTenant exclude each other" }],
        ...others.map(part => [`${part}?tenant=evil`, 403, { error: "Forbidden: tenant is not acme" }] as const),
        ...["", "?prefix=ac"].map(query => [`tenants${query}`, 200, { tenants }] as const),
        ...["evil", "acmes"].map(prefix => [`tenants?prefix=${prefix}`, 200, { tenants: [] }] as const)
      ] as const) {
        expect([path, yield* ask("anna", "GET", `/store/${path}`)]).toEqual([path, { status, body }])
      }
      const activity = (yield* ask("anna", "GET", "/store/activity")).body
      expect(activity).toMatchObject({ nodes: [], holdings: { entries: 2, tenants: 1, largest: { entries: [] } } })
      expect((yield* ask("root", "GET", "/store/activity")).body.nodes).toHaveLength(1)
      const page = (yield* ask("anna", "GET", "/store/changes")).body
      expect(page.changes.map(({ key }: { readonly key: string }) => key)).toEqual(["a", "b"])
      const authorization = "Bearer anna"
      const frame = yield* firstFrame("/store/changes/ws", { authorization })
      expect(frame).toMatchObject({ type: "changes", changes: [{ key: "a" }, { key: "b" }] })
      expect(yield* firstFrame("/store/changes/ws?tenant=evil", { authorization })).toBe(403)
      expect(yield* firstFrame("/store/changes/ws", { cookie: "user=anna" })).toMatchObject({ type: "changes" })
      expect(yield* firstFrame("/store/changes/ws", {})).toBe(401)
    }).pipe(Effect.provide(serve(kind)))
  )

  it.scopedLive("an event stream shows a tenant its own changes alone", () =>
    Effect.gen(function* () {
      yield* ask("root", "PUT", `${foreign}/k`, { value: "secret" })
      yield* ask("root", "PUT", `${own}/a`, { value: 1 })
      const port = yield* Port
      const text = yield* Effect.promise(async () => {
        const answer = await fetch(`http://127.0.0.1:${port}/store/changes/stream`, {
          headers: { cookie: "user=anna" }
        })
        let received = ""
        for await (const chunk of answer.body!) {
          received += Buffer.from(chunk).toString()
          if (received.includes("data:")) break
        }
        return received
      })
      expect(text).toContain('"key":"a"')
      expect(text).not.toContain("secret")
    }).pipe(Effect.provide(serve(kind)))
  )

  it.scopedLive("sessions over HTTP are those of the host's users, and pages of others cannot use their cookies", () =>
    Effect.gen(function* () {
      const base = `http://127.0.0.1:${yield* Port}/agents/sessions`
      const bearer = (user: string) => ({ authorization: `Bearer ${user}` })
      const { id, tenant } = yield* Sessions.create(base, {}, bearer("anna"))
      expect(tenant).toBe("acme")
      const cookie = { cookie: "user=anna" }
      const foreign = { ...cookie, origin: "https://evil.example.com" }
      expect((yield* Sessions.ask(`${base}/${id}`, { headers: cookie })).status).toBe(200)
      expect(Sessions.outcome(yield* Sessions.post(`${base}/${id}/start`, undefined, foreign))).toEqual({
        status: 403,
        error: "This origin may not connect"
      })
      for (const [user, status] of [
        ["other", 404],
        ["reader", 403],
        ["root", 403],
        ["stranger", 401],
        ["late", 503]
      ] as const) {
        const asked = yield* Sessions.ask(`${base}/${id}`, { headers: bearer(user) })
        expect([user, asked.status, typeof asked.json.error]).toEqual([user, status, "string"])
      }
      const empty = yield* Sessions.post(`${base}/${id}/messages`, {}, bearer("anna"))
      expect(Sessions.outcome(empty)).toEqual({ status: 400, error: "Invalid request: content: is missing" })
      const large = yield* Sessions.post(base, "x".repeat(1024 * 1024 + 1), bearer("anna"))
      expect(Sessions.outcome(large)).toMatchObject({ status: 413 })
      const head = yield* Sessions.ask(`${base}/${id}/events`, { method: "HEAD", headers: bearer("anna") })
      expect([head.status, head.text]).toEqual([200, ""])
      expect(head.headers.get("stream-next-offset")).toMatch(/^0{16}_/)
      for (const live of ["sse", "long-poll"] as const) {
        const follower = yield* follow(`${base}/${id}/events`, { live, headers: bearer("anna") })
        const { json } = yield* Sessions.post(`${base}/${id}/messages`, { content: "one two" }, bearer("anna"))
        yield* follower.until(event => event.type === "turn_completed" && event.turnId === json.turnId)
        isDense(follower.events)
      }
      expect((yield* Sessions.ask(`${base}/${id}`, { method: "DELETE", headers: bearer("anna") })).status).toBe(204)
    }).pipe(Effect.provide(serve(kind)))
  )

  it.scopedLive("chats of the AI SDK are those of the host's users, over both transports", () =>
    Effect.gen(function* () {
      const url = `http://127.0.0.1:${yield* Port}/agents/chat/coder`
      for (const transport of ["http", "ws"] as const) {
        const one = yield* Chats.open(url, transport, { id: transport }, "anna")
        yield* Chats.settled(() => one.chat.sendMessage({ text: "hi" }))
        expect([one.chat.error, one.texts]).toEqual([undefined, ["hi", "echo: hi"]])
        const other = yield* Chats.open(url, transport, { id: "other" }, "reader")
        yield* Chats.settled(() => other.chat.sendMessage({ text: "hi" }))
        expect(other.chat.status).toBe("error")
      }
      const large = yield* Sessions.post(url, "x".repeat(16 * 1024 * 1024 + 1), { authorization: "Bearer anna" })
      expect(Sessions.outcome(large)).toMatchObject({ status: 413 })
      const absent = yield* Sessions.ask(`${url}/absent/stream`, { headers: { authorization: "Bearer anna" } })
      expect([absent.status, absent.text]).toEqual([204, ""])
    }).pipe(Effect.provide(serve(kind)))
  )

  it.scopedLive("runs of AG-UI are those of the host's users", () =>
    Effect.gen(function* () {
      const url = `http://127.0.0.1:${yield* Port}/agents/ag-ui/coder`
      const headers = { authorization: "Bearer anna" }
      const client = clientOf(url, { headers })
      const first = yield* client.say("hi", "run-1")
      expect(first.last).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "success" } })
      expect(textsOf(client.agent.messages).at(-1)).toBe("assistant: echo: hi")
      const other = clientOf(url, { headers: { authorization: "Bearer reader" } })
      expect((yield* other.say("hi")).failure).toMatch(/HTTP 403/)
      const stopped = yield* Sessions.ask(`${url}/thread-1/runs/run-1`, { method: "DELETE", headers })
      expect([stopped.status, stopped.text]).toEqual([204, ""])
      const wrong = yield* Sessions.post(
        url,
        { threadId: "t", runId: "r", messages: [{ id: "m", role: "x" }] },
        headers
      )
      expect(Sessions.outcome(wrong)).toMatchObject({ status: 400, error: expect.stringContaining("messages[0].role") })
    }).pipe(Effect.provide(serve(kind)))
  )

  it.scopedLive("the gateway's clients are the same users, and its sessions lie in the host's store", () =>
    Effect.gen(function* () {
      const create = { type: "create_session", id: "1", agentType: "coder" }
      const created = yield* firstFrame("/agents/ws", { authorization: "Bearer anna" }, create)
      expect(created).toMatchObject({ type: "session_created", session: { tenant: "acme" } })
      expect(yield* firstFrame("/agents/ws", { cookie: "user=anna" }, { type: "ping", id: "1" })).toMatchObject({
        type: "pong"
      })
      expect(yield* ask("anna", "GET", "/store/kv/tenant%3Aacme%2Fsessions")).toMatchObject({
        body: { items: [{ updatedBy: "anna" }] }
      })
      const listed = yield* firstFrame(
        "/agents/ws",
        { authorization: "Bearer other" },
        { type: "list_sessions", id: "1" }
      )
      expect(listed).toMatchObject({ type: "session_list", sessions: [] })
      for (const [user, status] of [
        ["reader", 403],
        ["root", 403],
        ["stranger", 401],
        ["late", 503]
      ] as const) {
        expect([user, yield* firstFrame("/agents/ws", { authorization: `Bearer ${user}` })]).toEqual([user, status])
      }
    }).pipe(Effect.provide(serve(kind)))
  )
})
