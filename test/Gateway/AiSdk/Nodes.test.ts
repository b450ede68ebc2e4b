/** Chats at several nodes that share a database: each works at each node. */
import { assert, expect, layer } from "@effect/vitest"
import { lastAssistantMessageIsCompleteWithApprovalResponses as isDecided } from "ai"
import { Effect } from "effect"
import { reasonToSkip } from "../../postgres/Server.ts"
import * as Environment from "../../service/Environment.ts"
import * as Gateways from "../../service/Gateways.ts"
import { token } from "../survival/Token.ts"
import { open, settled, shown, textOf, transports } from "./Fixture.ts"

layer(Environment.layer, { excludeTestServices: true })(
  `gateways that share one PostgreSQL ${reasonToSkip ?? ""}`,
  it => {
    for (const kind of transports) {
      const name = `serve each other's chats over ${kind}`
      if (reasonToSkip !== undefined) {
        it.skip(name)
        continue
      }
      it.scoped(name, () =>
        Effect.gen(function* () {
          const { serve } = yield* Gateways.make({ isLinked: true, env: { SESSION_LEASE: "1 minute" } })
          const nodes = yield* Effect.all([serve, serve], { concurrency: 2 })
          const key = yield* token("acme")
          const urls = nodes.map(({ url }) => `${url}/api/v1/chat/echo`)
          const messages = [{ id: "m", role: "user" as const, parts: [{ type: "text" as const, text: "hello" }] }]
          const init = { id: "c", messages, sendAutomaticallyWhen: isDecided }
          const tabs = yield* Effect.forEach(urls, url => open(url, kind, init, key))
          // The chat is made at both nodes at once.
          yield* Effect.forEach(tabs, ({ chat }) => settled(() => chat.sendMessage()), { concurrency: 2 })
          for (const { chat, texts } of tabs) {
            assert.deepStrictEqual([chat.error, texts], [undefined, ["hello", "echo: hello"]])
          }
          const [here, there] = [tabs[0]!, tabs[1]!]
          assert.deepStrictEqual(shown(here.chat.messages), shown(there.chat.messages))
          yield* settled(() => here.chat.sendMessage({ text: "/approve" }))
          there.chat.messages = here.chat.messages
          const part = there.last.parts.find(each => each.type === "dynamic-tool")
          const approval = part?.type === "dynamic-tool" ? part.approval : undefined
          yield* settled(async () => there.chat.addToolApprovalResponse({ id: approval!.id, approved: true }))
          yield* there.until(({ status }) => status === "ready" && textOf(there.last) === "approved")
          assert.strictEqual(there.chat.error, undefined)
          yield* Effect.fork(settled(() => there.chat.sendMessage({ text: "/hang" })))
          yield* there.until(({ messages }) => messages.length === 6)
          yield* Effect.fork(settled(() => here.chat.resumeStream()))
          yield* here.until(({ status }) => status === "streaming")
          const headers = { authorization: `Bearer ${key}` }
          const stopped = yield* settled(() => fetch(`${urls[0]}/c/stream`, { method: "DELETE", headers }))
          assert.strictEqual(stopped.status, 204)
          for (const tab of tabs) {
            yield* tab.until(({ status }) => status === "ready")
            expect(tab.last.metadata).toMatchObject({ status: "interrupted" })
          }
          const ask = (url: string, method = "GET") => Effect.promise(() => fetch(url, { method, headers }))
          const sessions = `${nodes[0]!.url}/api/v1/sessions`
          const listed = yield* Effect.flatMap(ask(sessions), answer => Effect.promise(() => answer.json()))
          const { id } = (listed as { readonly sessions: ReadonlyArray<{ readonly id: string }> }).sessions[0]!
          assert.strictEqual((yield* ask(`${sessions}/${id}`, "DELETE")).status, 204)
          for (const url of urls) {
            const answer = yield* ask(`${url}/c/messages`)
            assert.include(yield* Effect.promise(() => answer.text()), String.raw`There is no session \"c\"`)
          }
        })
      )
    }
  }
)
