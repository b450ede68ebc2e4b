/** Sessions after a fail-over of the database that has lost their newest events. */
import { expect, it } from "@effect/vitest"
import { Context, Effect } from "effect"
import { SessionEvents } from "../../../../src/Gateway/SessionEvents.ts"
import { keyOf } from "../../../../src/Gateway/Sessions/Session/SessionRecords.ts"
import { alice, history, listen, make, statesOf } from "../../../Gateway/Fixture.ts"
import { newStore, nodeLayer, optionsOf, sql } from "../../../postgres/Databases.ts"
import { live, onPostgres, quiet } from "../../../postgres/Live.ts"

/** A gateway over a database of which the newest events of its sessions can be lost. */
const gateway = Effect.gen(function* () {
  const url = yield* newStore
  const { start, stored } = yield* make({ stored: nodeLayer(optionsOf(url)) })
  const lose = (kept: number) =>
    Effect.all([
      sql(url, `DELETE FROM causeway.events WHERE seq > ${kept}`),
      sql(url, `UPDATE causeway.histories SET head = ${kept}`)
    ])
  /** As after a promotion of a standby that has only the first events. */
  const failOver = (kept: number) => Effect.zipRight(lose(kept), sql(url, "SELECT causeway.renew_epoch()"))
  return { start, url, lose, failOver, events: Context.get(stored, SessionEvents) }
})

onPostgres("A session whose newest events are lost", () => {
  const turn = Effect.gen(function* () {
    const context = yield* gateway
    const { sessions } = yield* context.start
    const { epoch, id } = yield* sessions.create(alice, { agentType: "echo" })
    const listener = yield* listen(sessions, id)
    yield* sessions.send(alice, id, "one")
    yield* listener.until(({ type }) => type === "turn_completed")
    return { ...context, sessions, id, epoch, listener }
  })

  for (const isNoticed of [true, false]) {
    const name = isNoticed ? "" : ", also if the database has its former epoch"
    it.scopedLive(`continues with what is left in another epoch when a client subscribes${name}`, () =>
      continues(isNoticed)
    )
  }

  const continues = (isNoticed: boolean) =>
    Effect.gen(function* () {
      const { epoch, failOver, id, listener, lose, sessions } = yield* turn
      const before = listener.events.slice(0, 2)
      yield* isNoticed ? failOver(2) : lose(2)
      const { subscription } = yield* listen(sessions, id)
      expect(subscription.epoch).not.toBe(epoch)
      const left = yield* history(subscription)
      expect(left.slice(0, 2)).toEqual(before)
      expect(statesOf(left)).toEqual(["activating", "active", "inactive"])
      yield* listener.untilLost
    }).pipe(Effect.provide(quiet))

  live("has another epoch when a node asks for it", function* () {
    const { epoch, failOver, id, sessions } = yield* turn
    yield* failOver(2)
    // It answers from memory if the database does not answer in time.
    yield* Effect.repeat(sessions.get(alice, id), { until: session => session.epoch !== epoch })
  })

  live("has another epoch if its whole history is lost, and its record is not", function* () {
    const { events, start, url } = yield* gateway
    const first = yield* start
    const { epoch, id } = yield* first.sessions.create(alice, { agentType: "echo" })
    const find = Effect.flatten(events.find(keyOf(alice.tenant, id)))
    expect(yield* find).toMatchObject({ epoch, headSeq: 0 })
    yield* first.stop
    yield* sql(url, "DELETE FROM causeway.histories")
    const { sessions } = yield* start
    const { subscription } = yield* listen(sessions, id)
    expect(subscription.epoch).not.toBe(epoch)
    expect(yield* find).toMatchObject({ epoch: subscription.epoch })
  })
})
