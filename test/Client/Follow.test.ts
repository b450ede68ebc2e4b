/** A follower by each transport. */
import { describe, expect, it } from "vitest"
import { type FollowStatus, type TransportName, Unauthorized } from "../../src/Client/Client.ts"
import { keys } from "../Harness.ts"
import { onlyLong } from "../Scale.ts"
import { Gathered, ManualClock, observing, passUntil, range, settled, until, withService } from "./Harness.ts"

const namespace = "tenant:acme/settings"
const transports: ReadonlyArray<TransportName> = ["webSocket", "serverSentEvents", "longPolling"]

describe.each(transports)("a follower by %s", transport => {
  /** For what costs much and is the same for all transports. */
  const itOnce = transport === "webSocket" ? it : onlyLong(it)
  const only = { transports: [transport] }

  it("starts at a position, and receives later changes", () =>
    withService(async ({ connect, direct }) => {
      const writer = direct()
      for (const value of range(1, 3)) await writer.set(namespace, `k${value}`, value, { actor: "anna" })
      const { ending, onStatus, signal, statuses } = observing()
      const reason = new Error("enough")
      const gathered = new Gathered(connect(only).follow({ after: 1, signal, onStatus }))
      await until(() => statuses.length === 1)
      expect(statuses).toEqual([{ type: "connected", transport }])
      await writer.delete(namespace, "k2")
      await until(() => gathered.events.length === 3)
      expect(gathered.seqs).toEqual([2, 3, 4])
      expect(gathered.events[1]).toMatchObject({
        change: { op: "set", namespace, key: "k3", value: 3, actor: "anna", tenantId: "acme", version: 1 }
      })
      expect(gathered.events[2]).toMatchObject({ change: { op: "delete", value: null, version: 2 } })
      ending.abort(reason)
      await gathered.done
      expect(gathered.ended).toEqual({ error: reason })
    }))

  it("starts with a list, and receives only the changes of its part", () =>
    withService(async ({ connect, direct }) => {
      const writer = direct()
      await writer.batch(range(1, 5).map(n => ({ op: "set", namespace, key: `a/${n}`, value: n })))
      await writer.set(namespace, "b", 0)
      await writer.set("tenant:other/a", "a/1", 0)
      const ending = new AbortController()
      const follow = connect(only).follow({ namespace, prefix: "a/", signal: ending.signal })
      const gathered = new Gathered(follow)
      await until(() => gathered.types.includes("synced"))
      expect(gathered.events.slice(0, 5).map(event => event.type === "entry" && event.entry.key)).toEqual(
        range(1, 5).map(n => `a/${n}`)
      )
      expect(gathered.events[5]).toEqual({ type: "synced", lastSeq: 7, epoch: expect.stringMatching(/./) })
      await writer.set(namespace, "b", 1)
      await writer.set("tenant:acme/more", "a/1", 1)
      await writer.set(namespace, "a/9", 1)
      await until(() => gathered.events.length === 7)
      expect(gathered.seqs).toEqual([10])
      ending.abort()
      await gathered.done
    }))

  it("starts at the end of a namespace, or at a position of its part, and receives only its changes", () =>
    withService(async ({ connect, direct }) => {
      const writer = direct()
      const space = "n / %😀"
      for (const key of ["a/1", "b", "a/2"]) for (const name of [space, "other"]) await writer.set(name, key, 1)
      const ending = new AbortController()
      const { signal } = ending
      const client = connect(only)
      const fresh = new Gathered(client.follow({ namespace: space, initial: false, signal }))
      const part = new Gathered(client.follow({ after: 1, namespace: space, prefix: "a/", signal }))
      const all = new Gathered(client.follow({ after: 1, namespace: space, signal }))
      await until(() => fresh.types.includes("synced") && part.seqs.length === 1 && all.seqs.length === 2)
      expect(fresh.events).toMatchObject([{ type: "synced", lastSeq: 6 }])
      for (const name of ["other", space]) await writer.set(name, "a/3", 1)
      await writer.set(space, "c", 1)
      await until(() => fresh.seqs.length === 2 && part.seqs.length === 2 && all.seqs.length === 4)
      expect([fresh.seqs, part.seqs, all.seqs]).toEqual([
        [8, 9],
        [5, 8],
        [3, 5, 8, 9]
      ])
      ending.abort()
      await Promise.all([fresh.done, part.done, all.done])
    }))

  it("continues after lost connections and restarts, without gaps or duplicates", () =>
    withService(async ({ connect, direct, proxy, service }) => {
      const { clock, ending, onStatus, statuses } = observing()
      const gathered = new Gathered(connect({ ...only, clock }).follow({ after: 0, signal: ending.signal, onStatus }))
      let written = 0
      const write = async (count: number) => {
        const writer = direct()
        for (let n = 0; n < count; n++) await writer.set(namespace, `k${written % 5}`, ++written)
      }
      await write(3)
      await passUntil(clock, () => statuses.at(-1)?.type === "connected" && gathered.seqs.length === written)
      proxy.cut()
      await write(3)
      await passUntil(clock, () => gathered.seqs.length === written)
      await service.stop()
      await passUntil(clock, () => statuses.at(-1)?.type === "disconnected")
      await service.start()
      await write(3)
      await passUntil(clock, () => statuses.at(-1)?.type === "connected" && gathered.seqs.length === written)
      expect(gathered.seqs).toEqual(range(1, 9))
      ending.abort()
      await gathered.done
    }))

  it("notices a connection that has fallen silent", () =>
    withService(async ({ connect, direct, proxy }) => {
      const { clock, ending, onStatus, statuses } = observing()
      const writer = direct()
      await writer.set(namespace, "k", 1)
      const gathered = new Gathered(connect({ ...only, clock }).follow({ after: 0, signal: ending.signal, onStatus }))
      await until(() => statuses.length === 1)
      await writer.set(namespace, "k", 2)
      await until(() => gathered.seqs.length === 2 && clock.timers > 0)
      if (transport === "longPolling") await until(() => proxy.requests.length > 0 && proxy.connections > 0)
      proxy.silence()
      await writer.set(namespace, "k", 3)
      clock.advance(39_999)
      expect(statuses.length).toBe(1)
      clock.advance(1)
      await until(() => statuses.length > 1)
      expect(statuses[1]).toMatchObject({ type: "disconnected", error: { isTimeout: true } })
      await passUntil(clock, () => gathered.seqs.length === 3)
      expect(gathered.seqs).toEqual([1, 2, 3])
      ending.abort()
      await gathered.done
      await until(() => clock.timers === 0)
    }))

  it("receives an event if its history is no longer kept", () =>
    withService(async ({ connect, direct, proxy, service }) => {
      const { clock, ending, onStatus, signal, statuses } = observing()
      const writer = direct()
      for (const value of range(1, 4)) await writer.set(namespace, `k${value}`, value)
      await service.trim()
      const late = new Gathered(connect(only).follow({ after: 1 }))
      await late.done
      expect([late.events, late.ended]).toEqual([[{ type: "trimmed", after: 1, trimmedSeq: 3 }], {}])

      const gathered = new Gathered(connect({ ...only, clock }).follow({ namespace, signal, onStatus }))
      await until(() => statuses.length === 1)
      proxy.isDown = true
      proxy.cut()
      await until(() => statuses.length === 2)
      await writer.delete(namespace, "k1")
      await writer.set(namespace, "k2", "new")
      await service.trim()
      proxy.isDown = false
      await passUntil(clock, () => gathered.types.filter(type => type === "synced").length === 2)
      expect(gathered.types).toEqual([
        ...["entry", "entry", "entry", "entry", "synced"],
        ...["trimmed", "entry", "entry", "entry", "synced"]
      ])
      ending.abort()
      await gathered.done
    }))

  it("detects another log, however long that is", () =>
    withService(async ({ connect, direct, service }) => {
      const { clock, ending, onStatus, signal, statuses } = observing()
      for (const value of range(1, 4)) await direct().set(namespace, `k${value}`, value)
      const client = connect({ ...only, clock })
      const all = new Gathered(client.follow({ after: 0, onStatus }))
      const part = new Gathered(client.follow({ namespace, signal, onStatus }))
      await until(() => statuses.length === 2)
      await service.stop()
      const writer = await service.restored()
      for (const value of range(1, 9)) await writer("tenant:acme/settings", `n${value}`)
      await service.start()
      const again = () => part.types.filter(type => type === "synced").length === 2
      await passUntil(clock, () => all.ended !== undefined && again())
      expect(all.types).toEqual(["change", "change", "change", "change", "reset"])
      expect(all.events.at(-1)).toMatchObject({ lastSeq: 9 })
      const entries = (count: number) => range(1, count).map(() => "entry")
      expect(part.types).toEqual([...entries(4), "synced", "reset", ...entries(9), "synced"])
      const epochs = new Set(part.events.flatMap(event => (event.type === "synced" ? event.epoch : [])))
      expect(epochs.size).toBe(2)

      // A position that is stored with its epoch is distinguished from one of the new log.
      const [old, current] = epochs
      for (const after of [0, 4, 9]) {
        const late = new Gathered(client.follow({ after, epoch: old! }))
        await late.done
        expect([late.events, late.ended]).toEqual([[{ type: "reset", lastSeq: 9, epoch: current }], {}])
      }
      const known = new Gathered(client.follow({ after: 8, epoch: current!, signal }))
      await until(() => known.events.length > 0)
      expect(known.events).toMatchObject([{ type: "change", change: { seq: 9 }, epoch: current }])
      ending.abort()
      await Promise.all([part.done, known.done])
    }))

  itOnce("reads no more than it must while its reader is slow", () =>
    withService(async ({ connect, direct, proxy }) => {
      const writer = direct()
      const value = "v".repeat(100_000)
      let isConnected = false
      const onStatus = () => {
        isConnected = true
      }
      const reader = connect(only).follow({ after: 0, onStatus })[Symbol.asyncIterator]()
      await writer.set(namespace, "k", value)
      expect(await reader.next()).toMatchObject({ value: { change: { seq: 1 } } })
      const second = reader.next()
      await until(() => isConnected)
      const sets = range(1, 100).map(() => ({ op: "set" as const, namespace, key: "k", value }))
      for (let n = 1; n <= 4; n++) await writer.batch(sets)
      await second
      // 40 MB lie in the log. A WebSocket cannot be paused, and is given up in place of that. What the buffers of the
      // system hold, which some let grow to 36 MiB, the client has not read.
      await settled(() => proxy.sent + proxy.taken)
      expect(proxy.taken).toBeLessThan(24_000_000)
      for (const seq of range(3, 401)) expect(await reader.next()).toMatchObject({ value: { change: { seq } } })
      await reader.return?.()
    })
  )

  it("ends at once when it is left, also amid a wait", () =>
    withService(async ({ connect, direct, proxy }) => {
      const { clock, onStatus, statuses } = observing()
      await direct().set(namespace, "k", 1)
      const follow = connect({ ...only, clock }).follow({ after: 0, onStatus })
      for await (const _ of follow) break
      const reader = follow[Symbol.asyncIterator]()
      await reader.next()
      const pending = reader.next()
      await until(() => statuses.length === 1)
      expect(await reader.return?.()).toEqual({ done: true, value: undefined })
      expect(await pending).toEqual({ done: true, value: undefined })
      await until(() => clock.timers === 0)
      await until(() => proxy.following === 0)
    }))

  it("takes a new token at each try, and ends where none is good", () =>
    withService(async ({ connect, direct, proxy }) => {
      const clock = new ManualClock()
      await direct().set(namespace, "k", 1)
      const errors: Array<string> = []
      const onStatus = (status: FollowStatus) => {
        if (status.type === "disconnected") errors.push(status.error.name)
      }
      let good = true
      let asked = 0
      const token = () => {
        asked++
        return good && asked !== 1 ? keys.write : "wrong"
      }
      const gathered = new Gathered(connect({ ...only, clock, token }).follow({ after: 0, onStatus }))
      await until(() => errors.length === 1)
      clock.advance(30_000)
      await until(() => gathered.seqs.length === 1)
      good = false
      proxy.cut()
      await passUntil(clock, () => gathered.ended !== undefined)
      expect(gathered.ended?.error).toBeInstanceOf(Unauthorized)
      const fixed = new Gathered(connect({ ...only, token: "wrong" }).follow({ after: 0 }))
      await fixed.done
      expect(fixed.ended?.error).toBeInstanceOf(Unauthorized)
    }))
})
