/** A WebSocket that receives entries before it follows the log: its pace, its failures and its end. */
import { describe, expect } from "@effect/vitest"
import { Effect, Stream } from "effect"
import type { Close, Connection } from "../../../src/Http/WebSocket.ts"
import { type FollowerOwner, type Initial, InitialFollower } from "../../../src/Kv/ChangeFeed/Follower.ts"
import { encoded } from "../../../src/Kv/Entry.ts"
import { StoreBusy, StoreUnavailable } from "../../../src/Kv/Store.ts"
import { test } from "../../Tests.ts"
import { query } from "./Harness.ts"

const turns = Effect.repeatN(
  Effect.promise(() => new Promise<void>(resolve => setImmediate(resolve))),
  50
)

/** A follower of entries, and its events. */
const setup = (
  portions: Stream.Stream<ReadonlyArray<ReturnType<typeof encoded>>, StoreUnavailable>,
  blocksAfter = Number.POSITIVE_INFINITY
) => {
  const seen = { frames: [] as string[], closes: [] as Close[], released: 0, freed: 0, calls: [] as string[] }
  let isOpen = true
  const connection: Connection = {
    get isOpen() {
      return isOpen
    },
    hasRoom: true,
    blockedSince: undefined,
    send: () => {},
    sendFrame: frame => {
      seen.frames.push(frame.toString("latin1").slice(frame.indexOf("{")))
      if (seen.frames.length >= blocksAfter) follower.onBlocked()
    },
    pause: () => {},
    resume: () => {},
    close: close => {
      seen.closes.push(close)
      isOpen = false
      follower.onClosing()
    },
    terminate: () => {},
    tick: () => {}
  }
  const call = (name: string) => () => seen.calls.push(name)
  const owner: FollowerOwner = {
    add: ({ query }, first) => {
      seen.calls.push("add")
      expect([query.after, query.epoch, first.end]).toEqual([7, "e", { epoch: "e", after: 7 }])
    },
    remove: () => seen.released++,
    suspend: call("suspend"),
    resume: call("resume"),
    heartbeat: call("heartbeat")
  }
  const list: Initial = Effect.as(
    Effect.addFinalizer(() => Effect.sync(() => seen.freed++)),
    { lastSeq: 7, epoch: "e", portions }
  )
  const make = (initial: Initial) => new InitialFollower(connection, owner, query(), initial, Effect.runFork)
  let follower = make(list)
  const failing = (error: StoreBusy | StoreUnavailable) => {
    follower = make(Effect.fail(error))
    return follower
  }
  return { seen, failing, follower }
}

const entry = (index: number) => encoded(`{"namespace":"n","key":"k${index}","value":1}`)

describe("InitialFollower", () => {
  test.live("reads on only as the client takes what it was sent, and then follows", function* () {
    let read = 0
    const portions = Stream.range(1, 20).pipe(
      Stream.rechunk(1),
      Stream.map(index => {
        read++
        return [entry(index)]
      })
    )
    const { follower, seen } = setup(portions, 1)
    follower.onOpen()
    for (let taken = 1; taken <= 20; taken++) {
      yield* turns
      expect([seen.frames.length, seen.calls.includes("add")]).toEqual([taken, false])
      follower.onTick(1e9)
      expect(read).toBeLessThanOrEqual(taken + 1)
      follower.onRoom()
    }
    yield* turns
    expect(seen.frames[0]).toBe('{"type":"initial","entries":[{"namespace":"n","key":"k1","value":1}]}')
    expect(seen.frames.at(-1)).toBe('{"type":"initial-end","lastSeq":7,"epoch":"e"}')
    // The end fills the connection too: the log is followed once there is room.
    expect([new Set(seen.calls), seen.freed]).toEqual([new Set(["suspend"]), 1])
    seen.calls.length = 0
    follower.onRoom()
    yield* turns
    follower.onBlocked()
    follower.onRoom()
    follower.onClosing()
    follower.onClosed()
    expect([seen.calls, seen.released]).toEqual([["add", "suspend", "resume", "suspend"], 1])
  })

  test.live("closes with 1013 if the list is refused or aborted, and never reports its end", function* () {
    const broken = setup(Stream.concat(Stream.make([entry(1)]), Stream.fail(new StoreUnavailable({ reason: "gone" }))))
    broken.follower.onOpen()
    yield* turns
    expect(broken.seen.frames).toHaveLength(1)
    expect(broken.seen.closes).toEqual([{ code: 1013, reason: "The list was aborted; connect again" }])
    for (const error of [new StoreBusy({ retryAfterSeconds: 1 }), new StoreUnavailable({ reason: "unavailable" })]) {
      const { failing, seen } = setup(Stream.empty)
      const follower = failing(error)
      follower.onOpen()
      yield* turns
      follower.onClosed()
      expect([seen.frames, seen.closes.map(({ code }) => code), seen.released]).toEqual([[], [1013], 1])
    }
  })

  test.live("releases the snapshot and its slot when the client disconnects during the entries", function* () {
    const { follower, seen } = setup(Stream.repeatEffect(Effect.as(turns, [entry(1)])), 3)
    follower.onOpen()
    while (seen.frames.length < 3) yield* turns
    expect(seen.freed).toBe(0)
    follower.onClosing()
    follower.onClosed()
    yield* turns
    expect([seen.freed, seen.released, seen.frames.length, seen.calls.includes("add")]).toEqual([1, 1, 3, false])
  })
})
