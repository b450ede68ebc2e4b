/** How a follower chooses its transport and its credential, and when it tries again. */
import { describe, expect, it } from "vitest"
import { WebSocket as NodeWebSocket } from "ws"
import { type FollowStatus, TokenUnavailable } from "../../src/Client/Client.ts"
import { keys } from "../Harness.ts"
import { BrowserWebSocket, Gathered, ManualClock, observing, range, until, withService } from "./Harness.ts"

const namespace = "tenant:acme/settings"

describe("a follower", () => {
  it("takes another way where something refuses WebSockets, and the best way again later", () =>
    withService(async ({ connect, direct, proxy }) => {
      const { clock, ending, onStatus, statuses } = observing()
      proxy.refusesWebSockets = true
      const gathered = new Gathered(connect({ clock }).follow({ after: 0, signal: ending.signal, onStatus }))
      await until(() => statuses.length === 1)
      expect(statuses).toEqual([{ type: "connected", transport: "serverSentEvents" }])
      await direct().set(namespace, "k", 1)
      await until(() => gathered.seqs.length === 1)
      proxy.refusesWebSockets = false
      clock.advance(30_000)
      for (let n = 2; n <= 11; n++) {
        await direct().set(namespace, "k", n)
        await until(() => gathered.seqs.length === n)
        clock.advance(30_000)
      }
      proxy.cut()
      await until(() => statuses.length === 2)
      clock.advance(30_000)
      await until(() => statuses.length === 3)
      expect(statuses[2]).toEqual({ type: "connected", transport: "webSocket" })
      expect(gathered.seqs).toEqual(range(1, 11))
      ending.abort()
      await gathered.done
    }))

  it("waits for a token that cannot be had now", () =>
    withService(async ({ connect, direct }) => {
      const clock = new ManualClock()
      await direct().set(namespace, "k", 1)
      const statuses: Array<FollowStatus> = []
      const tokens = [() => Promise.reject(new Error("offline"))]
      const token = () => tokens.pop()?.() ?? keys.read
      const follow = connect({ clock, token }).follow({ after: 0, onStatus: status => statuses.push(status) })
      const reader = follow[Symbol.asyncIterator]()
      const first = reader.next()
      await until(() => statuses.length === 1)
      expect(statuses[0]).toMatchObject({ type: "disconnected", error: expect.any(TokenUnavailable) })
      clock.advance(1000)
      expect(await first).toMatchObject({ value: { change: { seq: 1 } } })
      await reader.return?.()
    }))

  it("goes by WebSocket in a browser, which takes subprotocols alone", () =>
    withService(async ({ connect, direct }) => {
      for (const token of [keys.write, keys.read]) {
        const { ending, onStatus, statuses } = observing()
        const client = connect({ token, WebSocket: BrowserWebSocket, transports: ["webSocket"] })
        const gathered = new Gathered(client.follow({ after: 0, signal: ending.signal, onStatus }))
        await until(() => statuses.length === 1)
        await direct().set(namespace, "k", 1)
        await until(() => gathered.seqs.length > 0)
        expect(statuses).toEqual([{ type: "connected", transport: "webSocket" }])
        ending.abort()
        await gathered.done
      }
    }))

  it("uses a WebSocket that is passed in", () =>
    withService(async ({ connect, direct }) => {
      const { ending, onStatus, signal, statuses } = observing()
      const gathered = new Gathered(connect({ WebSocket: NodeWebSocket }).follow({ after: 0, signal, onStatus }))
      await direct().set(namespace, "k", 1)
      await until(() => statuses.length === 1 && gathered.seqs.length > 0)
      expect(statuses).toEqual([{ type: "connected", transport: "webSocket" }])
      ending.abort()
      await gathered.done
    }))
})
