/** Tenants that take all they can get of what everybody shares, with an honest one beside them that is served. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Option, Redacted } from "effect"
import { codeOf, completeTurn, connect, createSession, make, type Options } from "./SocketFixture.ts"
import { secret, token } from "./survival/Token.ts"

const MiB = 1024 * 1024

const start = (options: Options) =>
  Effect.gen(function* () {
    const gateway = yield* make({ ...options, authentication: { secret: Option.some(Redacted.make(secret)) } })
    const running = yield* gateway.start
    const enter = (tenant: string) =>
      Effect.flatMap(token(tenant), bearer => connect(running.url, { headers: { authorization: `Bearer ${bearer}` } }))
    return { ...gateway, ...running, enter }
  })

describe("what tenants share", () => {
  it.scopedLive("files: a tenant whose clients do not read them keeps nobody from theirs", () =>
    Effect.gen(function* () {
      const { enter } = yield* start({ socket: { fileBytes: 40 * MiB } })
      const honest = yield* enter("acme")
      const own = yield* createSession(honest)
      yield* honest.get("subscribed", { type: "subscribe", sessionId: own })
      yield* completeTurn(honest, own, "/write own.txt honest")
      const first = yield* enter("evil")
      const sessionId = yield* createSession(first)
      yield* first.get("subscribed", { type: "subscribe", sessionId })
      yield* completeTurn(first, sessionId, `/write large.txt ${"x".repeat(900_000)}`)
      for (let count = 0; count < 17; count++) {
        const client = yield* enter("evil")
        client.socket.pause()
        for (let id = 0; id < 40; id++) {
          yield* client.send(JSON.stringify({ type: "read_file", id: String(id), sessionId, path: "large.txt" }))
        }
      }
      // As often as what was sent to those who did not read could be lost sight of.
      for (let count = 0; count < 5; count++) {
        const answer = yield* honest.ask({ type: "read_file", sessionId: own, path: "own.txt" })
        assert.strictEqual(codeOf(answer), "file_content")
      }
    })
  )
})
