/** Sessions as durable streams, read by the official client, unmodified. */
import { assert, describe, expect, layer } from "@effect/vitest"
import { Effect, Exit, Layer, Scope } from "effect"
import * as EventsInMemory from "../../../src/Gateway/SessionEvents/Memory.ts"
import { sqlite } from "../../../src/Storage/Backends.ts"
import * as Memory from "../../../src/Storage/Memory.ts"
import { reasonToSkip } from "../../postgres/Server.ts"
import * as Environment from "../../service/Environment.ts"
import * as Gateways from "../../service/Gateways.ts"
import * as InProcess from "../../service/InProcess.ts"
import { temporaryDirectory } from "../../TemporaryDirectory.ts"
import { test } from "../../Tests.ts"
import { live, make } from "../Socket/Fixture.ts"
import { token } from "../survival/Token.ts"
import { failure, follow, isDense, readAll } from "./DurableClient.ts"
import { ask, controlsOf, create, open, post } from "./Fixture.ts"

const completed = (turnId: string | undefined) => (event: { readonly type: string; readonly turnId?: unknown }) =>
  event.type === "turn_completed" && event.turnId === turnId

/** Sends a message and returns its turn. */
const send = (base: string, id: string, content: string, headers: Readonly<Record<string, string>> = {}) =>
  Effect.map(post(`${base}/${id}/messages`, { content }, headers), ({ json, status }) => {
    assert.strictEqual(status, 200, json.error)
    return json.turnId
  })

describe("the official client", () => {
  live("reads all that is stored, and nothing after the newest event", function* ({ base }) {
    const { id } = yield* create(base)
    const url = `${base}/${id}/events`
    expect(yield* readAll(url)).toMatchObject({ events: [], upToDate: true })
    const follower = yield* follow(url)
    yield* follower.until(completed(yield* send(base, id, "/long 600")))
    const all = yield* readAll(url)
    isDense(all.events)
    assert.isAbove(all.events.length, 600)
    assert.deepStrictEqual(all.events, follower.events)
    expect(yield* readAll(url, { offset: all.offset })).toEqual({ ...all, events: [] })
    expect((yield* readAll(url, { offset: "now" })).events).toEqual([])
  })

  for (const mode of ["long-poll", "sse"] as const) {
    live(`follows a session by ${mode}, from the beginning and from now on, until it is deleted`, function* ({ base }) {
      const { id } = yield* create(base)
      const url = `${base}/${id}/events`
      const early = yield* follow(url, { live: mode })
      yield* early.until(completed(yield* send(base, id, "one two three")))
      const late = yield* follow(url, { live: mode, offset: "now" })
      const second = yield* send(base, id, "four five")
      yield* Effect.all([early.until(completed(second)), late.until(completed(second))])
      isDense(early.events)
      const first = late.events[0]!.seq
      isDense(late.events, first)
      assert.deepStrictEqual(early.events.slice(first - 1), late.events)
      const offset = early.offset()
      const resumed = yield* follow(url, { live: mode, offset })
      const third = yield* send(base, id, "six")
      yield* Effect.all([early.until(completed(third)), resumed.until(completed(third))])
      isDense(resumed.events, Number.parseInt(offset, 10) + 1)
      yield* ask(`${base}/${id}`, { method: "DELETE" })
      assert.deepStrictEqual(yield* Effect.all([early.ended, resumed.ended]), ["closed", "closed"])
      assert.isTrue(early.isClosed())
      isDense(early.events)
    })
  }

  live("gets the errors of the protocol", function* ({ base }) {
    const { id } = yield* create(base)
    const [one, other] = [`${base}/${id}/events`, `${base}/${(yield* create(base)).id}/events`]
    const { offset } = yield* readAll(one)
    expect(yield* failure(other, { offset })).toBe(410)
    for (const offset of ["", "0", "-2", "0000000000000001_%zz"]) expect(yield* failure(one, { offset })).toBe(400)
    expect(yield* failure(one, { offset: offset.replace("000_", "009_") })).toBe(400)
    expect(yield* failure(`${base}/absent/events`)).toBe(404)
  })

  const stored = (retention: { readonly events: number; readonly bytes: number }) =>
    Layer.merge(Memory.layer, EventsInMemory.layer(retention))

  live(
    "gets 410 for an offset whose events are no longer kept, and all that is kept without one",
    { stored: stored({ events: 20, bytes: 1024 * 1024 }) },
    function* ({ base }) {
      const { id } = yield* create(base)
      const url = `${base}/${id}/events`
      const { offset } = yield* readAll(url)
      const turn = completed(yield* send(base, id, "/long 60"))
      yield* Effect.repeat(readAll(url), { until: ({ events }) => events.some(turn) })
      expect(yield* failure(url, { offset })).toBe(410)
      const { events } = yield* readAll(url)
      assert.isAtMost(events.length, 20)
      isDense(events, events[0]!.seq)
      expect(yield* failure(url, { offset: "now" })).toBe(200)
    }
  )

  for (const mode of ["long-poll", "sse"] as const) {
    test.scopedLive(`resumes by ${mode} after a crash of the service, without a gap or a duplicate`, function* () {
      const directory = yield* temporaryDirectory
      const { start } = yield* make({ stored: Layer.orDie(sqlite({ directory })) })
      const before = yield* start
      const { id } = yield* create(before.base)
      const follower = yield* follow(`${before.base}/${id}/events`, { live: mode })
      yield* follower.until(completed(yield* send(before.base, id, "one two three")))
      yield* before.kill
      yield* follower.ended
      const after = yield* start
      const resumed = yield* follow(`${after.base}/${id}/events`, { live: mode, offset: follower.offset() })
      yield* resumed.until(completed(yield* send(after.base, id, "four")))
      isDense([...follower.events, ...resumed.events])
      assert.deepStrictEqual((yield* readAll(`${after.base}/${id}/events`)).events, [
        ...follower.events,
        ...resumed.events
      ])
    })
  }
})

test.scopedLive("a shutdown of the service ends its streams whole", function* () {
  const scope = yield* Scope.make()
  const { url } = yield* Scope.extend(InProcess.serve({ DEV_MODE: "true" }), scope)
  const base = `${url}/api/v1/sessions`
  const { id } = yield* create(base)
  const stream = yield* open(`${base}/${id}/events?offset=-1&live=sse`)
  yield* stream.until(text => controlsOf(text).length > 0)
  const [isWhole] = yield* Effect.all([stream.isWhole, Scope.close(scope, Exit.void)], { concurrency: 2 })
  assert.isTrue(isWhole)
  assert.lengthOf(controlsOf(stream.text()), 2)
})

layer(Environment.layer, { excludeTestServices: true })(
  `gateways that share one PostgreSQL ${reasonToSkip ?? ""}`,
  it => {
    if (reasonToSkip !== undefined) {
      it.skip("serve streams of each other's sessions")
      return
    }

    it.scoped("serve streams and requests of each other's sessions, and an offset of one counts at the other", () =>
      Effect.gen(function* () {
        const { serve } = yield* Gateways.make({ isLinked: true, env: { SESSION_LEASE: "1 minute" } })
        const [one, other] = yield* Effect.all([serve, serve], { concurrency: 2 })
        const headers = { authorization: `Bearer ${yield* token("acme")}` }
        const [here, there] = [`${one.url}/api/v1/sessions`, `${other.url}/api/v1/sessions`]
        const chosen = `${Date.now().toString(16).padStart(12, "0")}${"7".repeat(24)}`
        const both = yield* Effect.all(
          [here, there, here, there].map(base => post(base, { id: chosen, agentType: "echo" }, headers)),
          { concurrency: 4 }
        )
        // Those that come while it is being created are asked to try again.
        assert.deepStrictEqual(both.filter(({ status }) => status === 201).length, 1)
        for (const { status } of both) assert.include([200, 201, 503], status)
        const mine = yield* follow(`${here}/${chosen}/events`, { headers, live: "sse" })
        const theirs = yield* follow(`${there}/${chosen}/events`, { headers, live: "sse" })
        const polled = yield* follow(`${there}/${chosen}/events`, { headers, live: "long-poll" })
        const first = yield* send(here, chosen, "one two", headers)
        yield* Effect.all([mine, theirs, polled].map(({ until }) => until(completed(first))))
        const moved = yield* follow(`${there}/${chosen}/events`, { headers, live: "sse", offset: mine.offset() })
        const second = yield* send(there, chosen, "three four", headers)
        yield* Effect.all([mine, theirs, polled, moved].map(({ until }) => until(completed(second))))
        isDense(mine.events)
        assert.deepStrictEqual(theirs.events, mine.events)
        assert.deepStrictEqual(polled.events, mine.events)
        isDense(moved.events, mine.events.length - moved.events.length + 1)
        assert.strictEqual((yield* ask(`${there}/${chosen}`, { headers })).json.session.state, "active")
        assert.strictEqual((yield* ask(`${there}/${chosen}`, { method: "DELETE", headers })).status, 204)
        const ends = yield* Effect.all([mine, theirs, polled].map(({ ended }) => ended))
        assert.deepStrictEqual(ends, ["closed", "closed", "closed"])
        assert.deepStrictEqual(
          [mine, theirs, polled].map(({ isClosed }) => isClosed()),
          [true, true, true]
        )
      })
    )
  }
)
