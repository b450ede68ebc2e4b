import { join } from "node:path"
import { assert, describe, expect, it } from "@effect/vitest"
import { Duration, Effect, Option, TestClock } from "effect"
import type { Pool } from "../../../../src/Storage/Postgres/Database/Pool.ts"
import type { Query } from "../../../../src/Storage/Postgres/Database/Statement.ts"
import * as NodeIdentity from "../../../../src/Storage/Postgres/SessionEvents/NodeIdentity.ts"
import * as NodeLease from "../../../../src/Storage/Postgres/SessionEvents/NodeLease.ts"
import { NodeWatch } from "../../../../src/Storage/Postgres/SessionEvents/NodeLease.ts"
import { OwnedSessions } from "../../../../src/Storage/Postgres/SessionEvents/SessionWriter.ts"
import { quiet } from "../../../postgres/Live.ts"
import { temporaryDirectory } from "../../../TemporaryDirectory.ts"
import { test } from "../../../Tests.ts"

describe("the directory of a node", () => {
  test.scoped("belongs to one process at a time, and remembers the id of its last run", function* () {
    const directory = yield* temporaryDirectory
    const first = yield* Effect.scoped(
      Effect.gen(function* () {
        const first = yield* NodeIdentity.make(directory)
        const refused = yield* Effect.flip(NodeIdentity.make(directory))
        expect(refused._tag).toBe("StoreRefused")
        expect(refused.message).toContain(`${join(directory, "node.lock")} is locked: another process has`)
        return first
      })
    )
    expect((yield* NodeIdentity.make(directory)).predecessor).toEqual(Option.some(first.id))
  })

  test.scoped("may be one that cannot be used", function* () {
    const { predecessor } = yield* NodeIdentity.make("/dev/null/node")
    expect(predecessor).toEqual(Option.none())
  })
})

describe("NodeWatch", () => {
  const one = (renewals: number) => ({ node: "a", renewals, lease: 900 })
  const other = { node: "b", renewals: 7, lease: 900 }

  it("finds a node that has not renewed its lease for a whole lease, and none that has", () => {
    const watch = new NodeWatch(900)
    for (const renewals of [1, 2, 3]) {
      assert.deepStrictEqual(watch.update(300 * (renewals - 1), [one(renewals), other]), [])
    }
    assert.deepStrictEqual(watch.update(900, [one(4), other]), [other])
    assert.deepStrictEqual(watch.update(1200, [one(4), { ...other, renewals: 8 }]), [])
  })

  it("counts no time in which it has not read the others", () => {
    const watch = new NodeWatch(900)
    assert.deepStrictEqual(watch.update(0, [other]), [])
    assert.deepStrictEqual(watch.update(10_000, [other]), [])
    assert.deepStrictEqual(watch.update(10_400, [other]), [])
    assert.deepStrictEqual(watch.update(10_800, [other]), [])
    assert.deepStrictEqual(watch.update(11_200, [other]), [other])
  })

  it("waits for as long as the lease of the other one, if that is longer than its own", () => {
    const watch = new NodeWatch(300)
    const long = { ...other, lease: 900 }
    for (let time = 0; time < 900; time += 100) assert.deepStrictEqual(watch.update(time, [long]), [])
    assert.deepStrictEqual(watch.update(900, [long]), [long])
  })

  it("forgets a node that is gone", () => {
    const watch = new NodeWatch(900)
    watch.update(0, [other])
    watch.update(400, [])
    assert.deepStrictEqual(watch.update(800, [other]), [])
    assert.deepStrictEqual(watch.update(1200, [other]), [])
  })
})

it("a node that has taken a session back does not lose it by an earlier token", () => {
  const owned = new OwnedSessions()
  owned.add("acme/1", 1)
  owned.add("acme/1", 2)
  owned.lose("acme/1", 1)
  assert.strictEqual(owned.tokenOf("acme/1"), 2)
  owned.lose("acme/1", 2)
  assert.strictEqual(owned.tokenOf("acme/1"), undefined)
})

it.scoped("a node whose lease had ended finds sessions whose new owner commits after its next renewal", () =>
  Effect.gen(function* () {
    let lapses = 0
    let taken: ReadonlyArray<string> = []
    const read = ({ text }: Query<unknown>) =>
      Effect.sync(() => (text.includes("renew_lease") ? [lapses, true] : text.includes("stored") ? [] : taken))
    const owned = new OwnedSessions()
    owned.add("acme/1", 1)
    yield* NodeLease.keep({
      pool: { read } as unknown as Pool,
      ...{ node: "a", lease: Duration.seconds(9), predecessor: Option.none(), owned },
      ...{ address: () => null, onOthers: () => {}, onLapse: () => {} }
    })
    lapses = 1
    yield* TestClock.adjust("3 seconds")
    taken = ["acme/1"]
    yield* TestClock.adjust("3 seconds")
    assert.strictEqual(owned.tokenOf("acme/1"), undefined)
  }).pipe(Effect.provide(quiet))
)
