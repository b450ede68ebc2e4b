import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { completeTurn, connect, createSession, make } from "./SocketFixture.ts"

describe("The client socket", () => {
  it.scopedLive("create, subscribe, send: events come in order, and the rest of them after a reconnection", () =>
    Effect.gen(function* () {
      const { start } = yield* make()
      const { url } = yield* start
      const first = yield* connect(url)
      const sessionId = yield* createSession(first)
      const subscribed = yield* first.get("subscribed", { type: "subscribe", sessionId })
      expect(subscribed).toMatchObject({ headSeq: 0, recovered: true, session: { state: "inactive", tenant: "dev" } })
      yield* completeTurn(first, sessionId, "one")
      const seen = first.events(sessionId)
      expect(seen.map(({ seq }) => seq)).toEqual(seen.map((_, index) => index + 1))
      first.socket.terminate()

      const second = yield* connect(url)
      const { turnId } = yield* second.get("accepted", { type: "send_message", sessionId, content: "two" })
      const { epoch } = subscribed
      const again = yield* second.get("subscribed", { type: "subscribe", sessionId, afterSeq: seen.length, epoch })
      expect(again.recovered).toBe(true)
      yield* second.untilEvent(sessionId, event => event.type === "turn_completed" && event.turnId === turnId)
      const missed = second.events(sessionId)
      expect(missed.map(({ seq }) => seq)).toEqual(missed.map((_, index) => seen.length + index + 1))
    })
  )
})
