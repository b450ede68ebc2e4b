/** Frames to an instance: how long they wait, in which order they go, and which of them may be lost. */
import { describe, expect } from "@effect/vitest"
import { Effect, Fiber, Option, TestClock } from "effect"
import * as AgentPlatform from "../../../../src/Upstream/AgentPlatform.ts"
import type { UpstreamFailure } from "../../../../src/Upstream/Resilience/UpstreamFailure.ts"
import { connected, failure, message, type Peer, read } from "./Fixture.ts"

describe("InstanceConnection", () => {
  read(
    "lets a frame wait for the connection, fifteen seconds at most",
    ["open", failure({}), failure({}), "open", failure({})],
    function* ({ connection, peers }) {
      peers[0]!.drop()
      const sending = yield* Effect.fork(connection.send(message))
      yield* TestClock.adjust("2 seconds")
      yield* Fiber.join(sending)
      expect(peers[1]!.sent).toHaveLength(1)
      peers[1]!.drop()
      const hopeless = yield* Effect.fork(Effect.flip(connection.send(message)))
      yield* TestClock.adjust("14999 millis")
      expect(yield* Fiber.poll(hopeless)).toEqual(Option.none())
      yield* TestClock.adjust("1 millis")
      expect(yield* Fiber.join(hopeless)).toMatchObject({ reason: "timeout" })
    }
  )

  connected(
    "sends each message once and in order, and reports those that may be lost",
    function* ({ connection, peers }) {
      const heard: Array<AgentPlatform.Received> = []
      const hear: Effect.Effect<void, UpstreamFailure> = Effect.flatMap(connection.take, ([values, isOver]) => {
        heard.push(...values)
        return isOver ? Effect.void : hear
      })
      yield* Effect.fork(hear)
      const send = (turnId: string) => connection.send({ type: "message", content: turnId, turnId })
      const turnsOf = (peer: Peer | undefined) =>
        peer?.sent.map(text => (JSON.parse(text) as { turnId: string }).turnId)
      yield* send("read")
      peers[0]!.read()
      yield* TestClock.adjust(0)
      peers[0]!.deafen()
      yield* send("lost")
      yield* connection.send({ type: "interrupt", turnId: "read" })
      peers[0]!.emit({ type: "a", id: "e1" })
      peers[0]!.drop()
      const sending = yield* Effect.forEach(["b", "c", "d"], turnId => Effect.fork(send(turnId)))
      yield* TestClock.adjust("2 seconds")
      yield* Effect.forEach(sending, Fiber.join)
      expect(turnsOf(peers[0])).toEqual(["read", "lost", "read"])
      expect(turnsOf(peers[1])).toEqual(["b", "c", "d"])
      // It comes behind what was heard before the loss: that may have said that the message arrived.
      expect(heard).toMatchObject([{ type: "a" }, new AgentPlatform.Undelivered(["lost"])])
    }
  )

  read(
    "does not send what its sender takes back, and keeps to its time wherever it is called",
    ["open", failure({}), failure({}), failure({}), "open"],
    function* ({ connection, peers }) {
      peers[0]!.drop()
      const claimed: Array<boolean> = []
      const claim = () => {
        claimed.push(true)
        return false
      }
      const hopeless = yield* Effect.fork(
        Effect.uninterruptible(Effect.exit(connection.send(message, { timeout: 10 })))
      )
      yield* TestClock.adjust("10 millis")
      expect(yield* Fiber.join(hopeless)).toMatchObject({ cause: { error: { reason: "timeout" } } })
      const left = yield* Effect.fork(connection.send(message))
      yield* Effect.yieldNow()
      yield* Fiber.interrupt(left)
      const withdrawn = yield* Effect.fork(connection.send(message, { claim }))
      yield* TestClock.adjust("10 seconds")
      yield* Fiber.join(withdrawn)
      yield* connection.ready
      expect(claimed).toEqual([true])
      expect(peers[1]!.sent).toEqual([])
      yield* connection.send(message)
      yield* TestClock.adjust(0)
      expect(peers[1]!.sent).toHaveLength(1)
    }
  )
})
