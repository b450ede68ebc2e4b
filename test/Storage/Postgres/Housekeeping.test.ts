/** Housekeeping of a database: it sleeps until something is due, whichever node has written it. */
import { expect } from "@effect/vitest"
import { Clock, Effect, Layer, Option, TestClock, TestServices } from "effect"
import { ChangeLog } from "../../../src/Kv/ChangeLog.ts"
import * as Housekeeping from "../../../src/Storage/Housekeeping.ts"
import { newStore, withOwnClock } from "../../postgres/Databases.ts"
import { live, onPostgres } from "../../postgres/Live.ts"
import { set, start } from "../../suites/Store/Fixture.ts"
import { test } from "../../Tests.ts"
import * as Fixture from "./Fixture.ts"
import { namespace } from "./Fixture.ts"

const node = (url: string) => Fixture.node(url)

const put = ({ store }: Fixture.Node, key: string, expiresAt: number) =>
  store.commit({ operations: [set(namespace, key, 1, { expiresAt })], actor: "tester" })

/** Waits by the system clock, while that of the test does not advance. */
const until = (isReached: Effect.Effect<boolean, unknown>) =>
  Effect.repeat(Effect.zipRight(TestServices.provideLive(Effect.sleep("5 millis")), isReached), {
    until: reached => reached
  })

onPostgres("Housekeeping of PostgreSQL", () => {
  test.scoped(
    "asks for nothing while nothing is due, and learns at once what another node has made due earlier",
    function* () {
      yield* TestClock.setTime(start)
      const url = yield* newStore
      const [one, other] = [yield* node(url), yield* node(url)]
      yield* put(one, "late", start + 3_600_000)
      let asked = 0
      let woken = 0
      const log = ChangeLog.of({
        ...one.log,
        due: Effect.zipLeft(
          one.log.due,
          Effect.sync(() => asked++)
        ),
        awaitPast: seq => Effect.map(one.log.awaitPast(seq), () => void woken++)
      })
      yield* Layer.build(Layer.provide(Housekeeping.layer(Option.none()), Layer.succeed(ChangeLog, log)))
      // After its first run, and before it sleeps.
      yield* until(Effect.sync(() => asked === 2))
      yield* TestClock.adjust("4 minutes")
      expect([asked, woken]).toEqual([2, 0])

      const early = start + 300_000
      yield* put(other, "early", early)
      yield* until(Effect.sync(() => woken === 1))
      yield* TestClock.adjust("1 second")
      yield* until(Effect.sync(() => asked === 4))
      yield* TestClock.setTime(early)
      yield* until(Effect.map(Fixture.records(other), records => records.length === 3))
      expect((yield* Fixture.records(other))[2]).toMatchObject({ op: "delete", key: "early", actor: "expiry" })
    }
  )

  live("times that are due are those of the clock of the node, however far the database is ahead", function* () {
    const url = yield* newStore
    const setClock = yield* Effect.promise(() => withOwnClock(url))
    yield* Effect.promise(() => setClock(3_600_000))
    const one = yield* node(url)
    yield* put(one, "first", one.store.now() + 60_000)
    yield* put(one, "second", one.store.now() + 90_000)
    const { expiresAt, oldestAt } = yield* one.log.due
    const now = yield* Clock.currentTimeMillis
    expect(Math.abs(Number(expiresAt) - now - 60_000)).toBeLessThan(30_000)
    expect(Math.abs(Number(oldestAt) - now)).toBeLessThan(30_000)
  })
})
