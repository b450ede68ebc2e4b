import { assert, describe } from "@effect/vitest"
import { Effect, Schedule } from "effect"
import { WebSocket } from "ws"
import * as Fixture from "../../base/Observability/Fixture.ts"
import { keys } from "../../Harness.ts"
import { test } from "../../Tests.ts"

const headers = { authorization: `Bearer ${keys.write}`, "content-type": "application/json" }

/** A follower on a separate connection, once it is open. */
const follower = (url: string) =>
  Effect.acquireRelease(
    Effect.async<WebSocket>(resume => {
      const socket = new WebSocket(`${url.replace("http", "ws")}/api/v1/changes/ws`, { headers })
      socket.once("open", () => resume(Effect.succeed(socket)))
      socket.once("error", error => resume(Effect.die(error)))
    }),
    socket => Effect.sync(() => socket.terminate())
  )

const gauge = (url: string, name: string) =>
  Effect.promise(async () => {
    const text = await (await fetch(`${url}/metrics`)).text()
    return Number(new RegExp(`^${name} (\\d+)$`, "m").exec(text)?.[1])
  })

/** Waits until a gauge has an expected value. */
const until = (url: string, name: string, isExpected: (value: number) => boolean) =>
  Effect.repeat(gauge(url, name), { until: isExpected, schedule: Schedule.spaced("20 millis") })

describe("the change feed's metrics", () => {
  test.scopedLive("count followers, and show how far behind the slowest WebSocket is", function* () {
    const url = yield* Fixture.serve({})
    const lag = "change_feed_lag_changes"
    assert.strictEqual(yield* gauge(url, "change_feed_followers"), 0)
    assert.strictEqual(yield* gauge(url, lag), 0)
    const slow = yield* follower(url)
    const quick = yield* follower(url)
    assert.strictEqual(yield* gauge(url, "change_feed_followers"), 2)
    slow.pause()
    const body = JSON.stringify({ value: "x".repeat(1024 * 1024 - 16) })
    const write = Effect.promise(() => fetch(`${url}/api/v1/kv/n/k`, { method: "PUT", headers, body }))
    // More than the limit of unsent bytes and the buffers of the network.
    const behind = yield* Effect.repeat(Effect.zipRight(write, gauge(url, lag)), {
      until: value => value > 2,
      times: 100
    })
    assert.isAbove(behind, 2)
    slow.resume()
    yield* until(url, lag, value => value === 0)
    slow.terminate()
    quick.terminate()
    yield* until(url, "change_feed_followers", value => value === 0)
  })
})
