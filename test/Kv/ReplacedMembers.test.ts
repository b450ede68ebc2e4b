/** A host may replace each member of a port. The replacement is what runs. */
import { describe, expect } from "@effect/vitest"
import { type Context, Duration, Effect, Fiber, Layer, Option } from "effect"
import * as DrainingSignal from "../../src/Http/DrainingSignal.ts"
import * as ChangeFeed from "../../src/Kv/ChangeFeed.ts"
import { ChangeLog } from "../../src/Kv/ChangeLog.ts"
import { Store } from "../../src/Kv/Store.ts"
import * as Housekeeping from "../../src/Storage/Housekeeping.ts"
import * as Memory from "../../src/Storage/Memory.ts"
import { stock } from "../Harness.ts"
import { edge, quickEdge } from "../Http/Edge/EdgeTransport.ts"
import { isLong } from "../Scale.ts"
import { temporaryLayer } from "../Storage/SqliteFixture.ts"
import { at, batch, call, get, listAt, put, Site, site } from "../suites/Http/Fixture.ts"
import { test } from "../Tests.ts"

type Member = keyof Context.Tag.Service<Store> | keyof Context.Tag.Service<ChangeLog>

/** Counts the runs of each member of both ports. */
const counting = () => {
  const runs = new Map<string, number>()
  const counted = <Id, Port extends object>(tag: Context.Tag<Id, Port>) =>
    Effect.map(tag, port => {
      const members = Object.entries(port).map(([name, member]) => {
        const note = (): void => void runs.set(name, (runs.get(name) ?? 0) + 1)
        const called = (...given: ReadonlyArray<unknown>) => {
          note()
          return member(...given)
        }
        const run = Effect.suspend(() => {
          note()
          return member as Effect.Effect<unknown>
        })
        return [name, typeof member === "function" ? called : run]
      })
      return Object.fromEntries(members) as Port
    })
  const layer = Layer.merge(Layer.effect(Store, counted(Store)), Layer.effect(ChangeLog, counted(ChangeLog)))
  return { layer, runsOf: (member: Member): number => runs.get(member) ?? 0 }
}

const space = "tenant:t/x"
const keys = [{ namespace: space, key: "k" }]
const many = Array.from({ length: 1001 }, (_, n) => ({ op: "set", namespace: `${space}/many`, key: `k${n}`, value: n }))
const parts = [many.slice(0, 1000), many.slice(1000)]

/** What has a member run. */
const uses: Readonly<Record<Member, ReadonlyArray<Effect.Effect<unknown, unknown, Site>>>> = {
  commit: [put(space, "k", 1), call("DELETE", at(space, "k")), ...parts.map(part => batch(part))],
  get: [get(space, "k"), get(space, "absent")],
  getMany: [call("POST", "/api/v1/kv/read", { json: { keys } })],
  list: [call("GET", listAt(space)), call("GET", `${listAt(space)}?limit=1`)],
  listAll: [call("GET", listAt(`${space}/many`))],
  namespaces: [call("GET", "/api/v1/kv")],
  tenants: [call("GET", "/api/v1/tenants")],
  backup: [call("HEAD", "/api/v1/backup")],
  now: [call("PUT", at(space, "k"), { json: { value: 1, ttlMs: 60_000 } })],
  ready: [call("GET", "/api/v1/ready"), call("GET", "/api/v1/cluster/status")],
  read: [call("GET", "/api/v1/changes"), call("GET", "/api/v1/changes?limit=1")],
  history: [call("GET", "/api/v1/changes")],
  lastSeq: [
    Effect.gen(function* () {
      const ports = Layer.merge(DrainingSignal.layer, Layer.succeed(ChangeLog, (yield* Site).log))
      const { lag } = yield* Effect.provide(ChangeFeed.ChangeFeed, Layer.provide(ChangeFeed.layer, ports))
      yield* lag
    })
  ],
  awaitPast: [],
  trim: [],
  expire: [],
  due: []
}

const backends = [
  ["memory", Memory.layer],
  ["sqlite", temporaryLayer("inline")]
] as const

for (const [name, backend] of backends) {
  describe(`over ${name}, what is in the place of a member is used:`, () => {
    for (const transport of isLong ? [stock, edge, quickEdge] : name === "memory" ? [stock, quickEdge] : [quickEdge]) {
      test.scopedLive(`by the ${transport.name}`, function* () {
        const { layer, runsOf } = counting()
        const served = yield* site(transport, Layer.provide(layer, Layer.fresh(backend)))
        yield* Effect.gen(function* () {
          const { log, store } = yield* Site
          expect(Object.keys(uses).sort()).toEqual([...Object.keys(store), ...Object.keys(log)].sort())
          for (const [member, effects] of Object.entries(uses) as ReadonlyArray<[Member, (typeof uses)[Member]]>) {
            for (const [index, effect] of effects.entries()) {
              const before = runsOf(member)
              yield* effect
              expect(runsOf(member), `${member} ${index}`).toBeGreaterThan(before)
            }
          }
          const until = (...members: ReadonlyArray<Member>) => {
            const before = members.map(runsOf)
            const haveRun = () => members.every((member, index) => runsOf(member) > before[index]!)
            return Effect.repeat(Effect.sleep("1 millis"), { until: haveRun })
          }
          const { lastSeq } = JSON.parse((yield* call("GET", "/api/v1/changes?after=999999")).text)
          const waited = until("awaitPast")
          const poll = yield* Effect.fork(call("GET", `/api/v1/changes?after=${lastSeq}&wait=30`))
          yield* waited
          yield* put(space, "k", 1)
          expect(JSON.parse((yield* Fiber.join(poll)).text)).toMatchObject({ lastSeq: lastSeq + 1 })
          // Housekeeping does all of its tasks at its start.
          const housekeeping = Housekeeping.layer(Option.some(Duration.minutes(1)))
          const kept = until("due", "trim", "expire")
          yield* Effect.provide(kept, Layer.provide(housekeeping, Layer.succeed(ChangeLog, log)))
        }).pipe(Effect.provideService(Site, served))
      })
    }
  })
}
