import { expect } from "@effect/vitest"
import { Clock, Effect } from "effect"
import {
  at,
  batch,
  bodyOf,
  type Check,
  call,
  changesOf,
  type EntryBody,
  end,
  expectError,
  get,
  items,
  listAt,
  put,
  Site,
  space
} from "./Fixture.ts"

const endOfTime = 8_640_000_000_000_000

/** Looks at an entry until it is gone; `ttlMs` in these cases is a few milliseconds. */
const untilGone = (namespace: string, key: string) =>
  Effect.repeat(get(namespace, key), { until: answer => answer.status === 404 })

/** Entries that run out. */
export const expiry = (check: Check) => {
  check("ttlMs counts from the time of the write, expiresAt is taken as it is", function* () {
    const namespace = space()
    const hour = 3_600_000
    const before = yield* Clock.currentTimeMillis
    const relative = bodyOf<EntryBody>(yield* put(namespace, "a", 1, { json: { value: 1, ttlMs: hour } }))
    const after = yield* Clock.currentTimeMillis
    // A database has its time in whole milliseconds, from which that of a node differs by less than one.
    expect(relative.expiresAt).toBeGreaterThanOrEqual(before - 1 + hour)
    expect(relative.expiresAt).toBeLessThanOrEqual(after + hour)
    const absolute = yield* put(namespace, "b", 1, { json: { value: 1, expiresAt: after + hour } })
    expect(bodyOf<EntryBody>(absolute).expiresAt).toBe(after + hour)
    expect((yield* get(namespace, "b")).text).toBe(absolute.text)
    yield* batch([
      { op: "set", namespace, key: "c", value: 1, expiresAt: endOfTime },
      { op: "set", namespace, key: "d", value: 1, ttlMs: hour }
    ])
    const [, , c, d] = items(yield* call("GET", listAt(namespace)))
    expect([c?.expiresAt, d?.expiresAt]).toEqual([endOfTime, expect.any(Number)])
  })

  check("an expiry in the past, two expiries, or one out of range is refused", function* () {
    const namespace = space()
    const now = yield* Clock.currentTimeMillis
    const cases = [
      [{ expiresAt: now - 1 }, "expiresAt", "future"],
      [{ expiresAt: 1 }, "expiresAt", "future"],
      [{ expiresAt: now + 60_000, ttlMs: 60_000 }, "expiresAt", "ttlMs"],
      [{ ttlMs: endOfTime }, "ttlMs"],
      [{ expiresAt: endOfTime + 1 }, "expiresAt"],
      [{ ttlMs: -1 }, "ttlMs"]
    ] as const
    for (const [times, ...named] of cases) {
      expectError(yield* put(namespace, "k", 1, { json: { value: 1, ...times } }), 400, ...named)
      const operation = { op: "set", namespace, key: "k", value: 1, ...times }
      expectError(yield* batch([operation]), 400, "operations[0]", ...named)
    }
    expectError(yield* get(namespace, "k"), 404)
  })

  check("an expired entry has a delete by expiry in the log", function* () {
    const { log } = yield* Site
    const namespace = space()
    const start = yield* end
    yield* call("PUT", at(namespace, "k"), { json: { value: 1, ttlMs: 1 } })
    yield* untilGone(namespace, "k")
    yield* log.expire
    const [, deleted] = yield* changesOf(namespace, start)
    expect(deleted).toMatchObject({ op: "delete", key: "k", value: null, version: 2, actor: "expiry" })
  })
}
