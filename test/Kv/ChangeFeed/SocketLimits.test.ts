/** Clients that read too slowly, or send too much. */
import { connect as connectTcp } from "node:net"
import { describe, expect, it } from "@effect/vitest"
import { Effect, TestClock } from "effect"
import { MiB } from "../../../src/base/Bytes.ts"
import { onlyLong } from "../../Scale.ts"
import { check, connect, layer, put, type Served, serve, until, untilFollowers, untilFull } from "./Harness.ts"
import { frame, handshake } from "./WebSocketBytes.ts"

const megabyte = "x".repeat(MiB)

const count = 24

/** A client that reads nothing of `count` large changes, once its connection takes no more of them. */
const connectStuck = (served: Served) =>
  Effect.gen(function* () {
    const stuck = yield* connect(served, "")
    stuck.socket.pause()
    for (let seq = 1; seq <= count; seq++) yield* put("a", `${seq}${megabyte}`)
    yield* until(() => served.sockets[0]!.writableLength > MiB)
    yield* untilFull(served.sockets[0]!)
    return stuck
  })

describe("ChangeFeed.webSocket, limits", () => {
  check("terminates a peer that answers no pings", function* () {
    const served = yield* serve
    const lively = yield* connect(served, "")
    const dead = yield* connect(served, "")
    dead.socket.pause()
    for (let pings = 1; pings <= 2; pings++) {
      const before = lively.messages.length
      yield* TestClock.adjust("15 seconds")
      yield* until(() => lively.messages.length > before)
      // A round trip after the ping: the answer to it has been read by then.
      yield* Effect.async<void>(resume => {
        lively.socket.once("pong", () => resume(Effect.void))
        lively.socket.ping()
      })
    }
    yield* TestClock.adjust("15 seconds")
    yield* untilFollowers(1)
    expect(lively.closed).toBeUndefined()
  })

  check("closes a reader that does not drain with 4008, which then resumes without loss", function* () {
    const served = yield* serve
    const slow = yield* connectStuck(served)
    const fast = yield* connect(served, "")
    yield* until(() => fast.changes.length === count)
    expect(served.sockets[0]!.writableLength).toBeLessThan(6 * MiB)
    yield* TestClock.adjust("29 seconds")
    expect(slow.closed).toBeUndefined()
    yield* TestClock.adjust("2 seconds")
    slow.socket.resume()
    expect(yield* slow.code).toBe(4008)
    expect(slow.changes.length).toBeLessThan(count)
    const again = yield* connect(served, `after=${slow.messages.at(-1)!.lastSeq}`)
    yield* until(() => slow.changes.length + again.changes.length >= count)
    expect([...slow.changes, ...again.changes]).toEqual(Array.from({ length: count }, (_, i) => i + 1))
    expect(fast.closed).toBeUndefined()
  })

  check("lets a slow reader read everything before the close frame", function* () {
    const served = yield* serve
    const slow = yield* connectStuck(served)
    yield* TestClock.adjust("31 seconds")
    yield* TestClock.adjust("25 seconds")
    slow.socket.resume()
    expect(yield* slow.code).toBe(4008)
    expect(slow.changes).toEqual(slow.changes.map((_, index) => index + 1))
  })

  onlyLong(it.scoped)("does not close a slow reader that keeps reading", () =>
    Effect.gen(function* () {
      const served = yield* serve
      const slow = yield* Effect.acquireRelease(
        Effect.sync(() => connectTcp(served.port, "127.0.0.1")),
        socket => Effect.sync(() => socket.destroy())
      )
      let read = 0
      let isClosed = false
      slow.on("error", () => {})
      slow.on("close", () => {
        isClosed = true
      })
      slow.on("data", chunk => {
        read += chunk.length
      })
      slow.write(handshake())
      yield* untilFollowers(1)
      slow.pause()
      const count = 48
      for (let seq = 1; seq <= count; seq++) yield* put("a", `${seq}${megabyte}`)
      const unsent = () => served.sockets[0]!.writableLength
      yield* until(() => unsent() > 1024 * 1024)
      // The rest may be in the buffers of the operating systems at both ends: it is not visible here whether it was
      // read.
      let seconds = 0
      for (; unsent() > 1024 * 1024; seconds += 20) {
        yield* TestClock.adjust("20 seconds")
        const enough = read + 2 * megabyte.length
        slow.resume()
        yield* until(() => read >= enough || isClosed)
        slow.pause()
        expect(isClosed).toBe(false)
        yield* untilFull(served.sockets[0]!)
      }
      expect(seconds).toBeGreaterThanOrEqual(80)
      slow.resume()
      yield* until(() => read >= count * megabyte.length || isClosed)
      expect(isClosed).toBe(false)
    }).pipe(Effect.provide(layer()))
  )

  check("limits the messages that it reads from a follower", function* () {
    const served = yield* serve
    const said = frame(1, Buffer.from("blah"))
    const flood = Buffer.concat(Array.from({ length: 200_000 }, () => said))
    const talking = yield* Effect.acquireRelease(
      Effect.sync(() => connectTcp(served.port, "127.0.0.1")),
      socket => Effect.sync(() => socket.destroy())
    )
    talking.on("error", () => {})
    talking.write(handshake())
    talking.write(flood)
    yield* untilFollowers(1)
    const socket = served.sockets[0] as unknown as { readonly bytesRead: number; isPaused(): boolean }
    const settled = Effect.suspend(() => {
      let turns = 0
      return until(() => ++turns === 100)
    })
    yield* until(() => socket.isPaused())
    yield* settled
    expect(socket.bytesRead).toBeLessThan(flood.length / 2)
    const before = socket.bytesRead
    // A socket buffers 64 KiB (since Node 22): what was read before comes first, for a second or two.
    while (socket.bytesRead === before) {
      yield* TestClock.adjust("1 second")
      yield* settled
    }
    expect(socket.bytesRead).toBeLessThan(flood.length / 2)
  })

  check("keeps a reader that drains in time", function* () {
    const served = yield* serve
    const slow = yield* connectStuck(served)
    yield* TestClock.adjust("29 seconds")
    slow.socket.resume()
    yield* until(() => slow.changes.length === count)
    yield* TestClock.adjust("20 seconds")
    yield* put("a", "last")
    yield* until(() => slow.changes.length > count)
    expect(slow.changes).toEqual(Array.from({ length: count + 1 }, (_, i) => i + 1))
  })

  check("cuts off a reader that does not even take the close frame", function* () {
    const served = yield* serve
    yield* connectStuck(served)
    yield* TestClock.adjust("70 seconds")
    yield* untilFollowers(0)
  })
})
