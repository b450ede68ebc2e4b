/** What a gateway that was killed, or a failure, has left in the session database without an entry in the store. */
import { describe, expect, it } from "@effect/vitest"
import { Context, Effect, Fiber, Option } from "effect"
import { JsonText } from "../../../../src/base/Json/JsonText.ts"
import { SessionElsewhere, SessionEvents } from "../../../../src/Gateway/SessionEvents.ts"
import { keyOf, namespaceOf } from "../../../../src/Gateway/Sessions/Session/SessionRecords.ts"
import { Store, StoreUnavailable } from "../../../../src/Kv/Store.ts"
import { until, withWallClock } from "../../../../src/Simulator/Testing/Time.ts"
import { test } from "../../../Tests.ts"
import { alice, make, pass, storedWith } from "../../Fixture.ts"

const configured = { agentType: "echo", environment: { PASSWORD: "p" } }
const configuration = { environment: JSON.stringify(configured.environment), deployment: null }
const nothing = { environment: null, deployment: null }

/** Two passes, and the pause between them. */
const twoPasses = pass("12 minutes", "1 minute")

describe("orphaned sessions", () => {
  test.scoped("of a killed gateway are removed by the next one, and no others", function* () {
    const { start, stored } = yield* make()
    const events = Context.get(stored, SessionEvents)
    const first = yield* start
    const { id } = yield* first.sessions.create(alice, configured)
    yield* first.sessions.start(alice, id)
    yield* first.kill
    // A creation and a deletion that were interrupted by the kill, and an entry that a client has made invalid.
    yield* events.create("acme/created", "e")
    yield* events.configure("acme/configured", configuration)
    yield* events.configure("acme/changed", configuration)
    const entry = { namespace: namespaceOf("acme"), key: "changed", value: JsonText("0"), expiresAt: null }
    yield* Context.get(stored, Store).commit({ actor: "a", operations: [{ op: "set", ...entry }] })
    yield* start
    yield* pass("9 minutes", "1 minute")
    expect(yield* events.sessions("", 10)).toEqual([
      keyOf("acme", id),
      "acme/changed",
      "acme/configured",
      "acme/created"
    ])
    yield* pass("2 minutes", "1 minute")
    expect(yield* events.sessions("", 10)).toEqual([keyOf("acme", id), "acme/changed"])
    expect(yield* events.configuration(keyOf("acme", id))).toMatchObject({ environment: expect.any(String) })
  })

  test.scoped(
    "that still have instances to stop, or belong to another node, are left to those who stop them",
    function* () {
      const removed: Array<string> = []
      const shared = storedWith(({ remove }) => ({
        unfinished: Effect.succeed([]),
        remove: session => {
          removed.push(session)
          return session === "acme/elsewhere" ? new SessionElsewhere({ session }) : remove(session)
        }
      }))
      const { start, stored } = yield* make({ stored: shared })
      const events = Context.get(stored, SessionEvents)
      for (const session of ["acme/elsewhere", "acme/orphan", "acme/unfinished"]) yield* events.create(session, "e")
      const recoveryState = JSON.stringify({ lease: null, turns: [["t", "started"]] })
      const append = { session: "acme/unfinished", epoch: "e", after: 0, timestamp: 0, texts: [], recoveryState }
      yield* events.append(append)
      yield* start
      yield* twoPasses
      expect(removed).toEqual(["acme/elsewhere", "acme/orphan"])
      expect(yield* events.sessions("", 10)).toEqual(["acme/elsewhere", "acme/unfinished"])
    }
  )

  it.scoped("are none while their session is being created, and a creation that takes too long fails", () =>
    withWallClock(() =>
      Effect.gen(function* () {
        const gate = yield* Effect.makeLatch(false)
        let waiting = 0
        const slow = storedWith(({ configure }) => ({
          configure: (...given) =>
            Effect.zipRight(
              configure(...given),
              Effect.suspend(() => {
                waiting++
                return gate.await
              })
            )
        }))
        const { start, stored } = yield* make({ stored: slow })
        const events = Context.get(stored, SessionEvents)
        const { sessions } = yield* start
        const tooLong = yield* Effect.fork(Effect.flip(sessions.create(alice, configured)))
        yield* until(() => waiting === 1)
        yield* pass("6 minutes", "1 minute")
        // It begins just before the second pass.
        yield* pass("3 minutes", "1 minute")
        const intime = yield* Effect.fork(sessions.create(alice, configured))
        yield* until(() => waiting === 2)
        yield* pass("2 minutes", "1 minute")
        yield* gate.open
        expect(yield* Fiber.join(tooLong)).toMatchObject({ reason: "the creation took too long" })
        const { id } = yield* Fiber.join(intime)
        yield* twoPasses
        expect(yield* events.sessions("", 10)).toEqual([keyOf("acme", id)])
        expect(yield* events.configuration(keyOf("acme", id))).toEqual(configuration)
        expect((yield* sessions.list(alice)).sessions.map(({ id }) => id)).toEqual([id])
      })
    )
  )

  test.scoped("of creations that failed are removed, at once or when the database is back", function* () {
    const unavailable = new StoreUnavailable({ reason: "no answer" })
    let isUnavailable = false
    const failing = storedWith(
      ({ remove }) => ({ remove: session => Effect.suspend(() => (isUnavailable ? unavailable : remove(session))) }),
      () => ({ commit: () => unavailable })
    )
    const { start, stored } = yield* make({ stored: failing })
    const events = Context.get(stored, SessionEvents)
    const { sessions } = yield* start
    const create = Effect.flip(sessions.create(alice, configured))
    expect(yield* create).toBe(unavailable)
    expect(yield* events.sessions("", 10)).toEqual([])
    isUnavailable = true
    yield* Effect.repeatN(create, 9)
    const [orphan] = yield* events.sessions("", 10)
    expect(yield* events.configuration(orphan!)).toEqual(configuration)
    yield* twoPasses
    isUnavailable = false
    yield* twoPasses
    expect(yield* events.sessions("", 10)).toEqual([])
    expect(yield* events.configuration(orphan!)).toEqual(nothing)
  })

  test.scoped("are looked for in pages, each of which lets other work go first", function* () {
    const { start, stored } = yield* make()
    const events = Context.get(stored, SessionEvents)
    for (let index = 0; index < 500; index++) yield* events.create(`acme/${index}`, "e")
    yield* start
    yield* twoPasses
    expect(yield* events.sessions("", 10)).toEqual([])
    expect(yield* events.find("acme/0")).toEqual(Option.none())
  })
})
