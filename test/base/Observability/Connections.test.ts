import { expect, it } from "@effect/vitest"
import { Effect, Metric } from "effect"
import * as SocketFixture from "../../Gateway/Socket/Fixture.ts"
import * as Follower from "../../Kv/ChangeFeed/Harness.ts"

/** What `ws_connections_active` is; nothing where there is no such metric. Instances with tags have their own. */
const active = (): number | undefined =>
  Effect.runSync(Metric.snapshot).flatMap(({ metricKey: { name, tags }, metricState }) =>
    name === "ws_connections_active" && tags.length === 0 && "value" in metricState ? [Number(metricState.value)] : []
  )[0]

it.scopedLive("ws_connections_active counts clients of the gateway and followers of the change log", () =>
  Effect.gen(function* () {
    const { start } = yield* SocketFixture.make()
    const { url } = yield* start
    const served = yield* Follower.serve
    const before = active() ?? 0
    const client = yield* SocketFixture.connect(url)
    const follower = yield* Follower.connect(served, "after=0")
    const other = yield* Follower.connect(served, "after=0")
    yield* SocketFixture.until(() => active() === before + 3)
    client.socket.close()
    yield* SocketFixture.until(() => active() === before + 2)
    follower.socket.close()
    other.socket.terminate()
    yield* SocketFixture.until(() => active() === before)
    expect(active()).toBe(before)
  }).pipe(Effect.provide(Follower.layer()))
)
