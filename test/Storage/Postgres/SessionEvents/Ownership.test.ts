/** Several nodes over one database: which of them has a session, and how another one gets it. */
import { expect } from "@effect/vitest"
import { Effect, Either, Exit, Fiber, Option, Scope } from "effect"
import { newStore, sql, withClient } from "../../../postgres/Databases.ts"
import { live, onPostgres, together } from "../../../postgres/Live.ts"
import { someoneWaits } from "../Fixture.ts"
import { append, brief, isElsewhere, node, textsOf } from "./Fixture.ts"

onPostgres("The session event log in PostgreSQL", () => {
  live("a session belongs to the node that opened it until that releases it, and every node reads it", function* () {
    const url = yield* newStore
    const [{ events: one }, { events: other }] = [yield* node(url), yield* node(url)]
    const taken = yield* Effect.fork(one.taken)
    yield* one.open("t/s", "e1")
    yield* one.configure("t/s", { environment: "{}", deployment: null })
    yield* append(one, "t/s", 0, ["1"])
    yield* isElsewhere(other.open("t/s", "e2"))
    yield* isElsewhere(append(other, "t/s", 1, ["foreign"]))
    yield* isElsewhere(other.configure("t/s", { environment: null, deployment: null }))
    yield* isElsewhere(other.renewEpoch("t/s", "e2"))
    yield* isElsewhere(other.remove("t/s"))
    expect(yield* textsOf(other, "t/s")).toEqual(["1"])
    yield* one.release("t/s")
    expect(yield* other.open("t/s", "e2")).toMatchObject({ epoch: "e1", headSeq: 1 })
    yield* append(other, "t/s", 1, ["2"])
    yield* isElsewhere(append(one, "t/s", 2, ["late"]))
    yield* isElsewhere(one.renewEpoch("t/s", "e3"))
    // What was released cannot be released again by the one that had it.
    yield* one.release("t/s")
    yield* append(other, "t/s", 2, ["3"])
    expect(yield* textsOf(one, "t/s")).toEqual(["1", "2", "3"])
    // The node has given it up itself.
    expect(yield* Fiber.poll(taken)).toEqual(Option.none())
    expect(yield* one.configuration("t/s")).toEqual({ environment: "{}", deployment: null })
  })

  live("a node appends nothing with an earlier token of its own", function* () {
    const url = yield* newStore
    const { events, nodes } = yield* node(url)
    yield* events.open("t/s", "e1")
    yield* append(events, "t/s", 0, ["1"])
    // As if another process of the node had opened it again.
    yield* sql(url, "UPDATE causeway.histories SET token = token + 1")
    yield* isElsewhere(append(events, "t/s", 1, ["late"]))
    expect(nodes.tokenOf("t/s")).toBeUndefined()
    expect(yield* textsOf(events, "t/s")).toEqual(["1"])
  })

  live(
    "a node takes a session that another one gives up, as long as that has it and nothing is to recover",
    function* () {
      const url = yield* newStore
      const [one, other, third] = [yield* node(url), yield* node(url), yield* node(url)]
      for (const session of ["t/s", "t/unfinished"]) yield* one.events.open(session, "e1")
      yield* append(one.events, "t/unfinished", 0, ["1"], { recoveryState: "open" })
      const prepared: Array<number> = []
      const adopt = (to: typeof one, session: string, token: number) =>
        to.nodes.adopt(session, { node: one.nodes.self, token }, token => Effect.sync(() => void prepared.push(token)))
      const token = one.nodes.tokenOf("t/s")!
      expect(yield* adopt(other, "t/s", token + 1000)).toBe(false)
      expect(yield* adopt(other, "t/unfinished", one.nodes.tokenOf("t/unfinished")!)).toBe(false)
      expect(other.nodes.tokenOf("t/s")).toBeUndefined()
      expect(yield* adopt(other, "t/s", token)).toBe(true)
      // No other node can take a session that was given to the one.
      expect(yield* adopt(third, "t/s", token)).toBe(false)
      expect(other.nodes.tokenOf("t/s")).toBe(prepared[2])
      yield* append(other.events, "t/s", 0, ["1"])
      yield* isElsewhere(append(one.events, "t/s", 1, ["late"]))
      yield* isElsewhere(third.events.open("t/s", "e2"))
      expect(yield* textsOf(one.events, "t/s")).toEqual(["1"])
      // Those that take requests are returned.
      yield* one.nodes.advertise("one:1")
      yield* other.nodes.advertise("other:1")
      expect(yield* third.nodes.peers).toEqual(
        expect.arrayContaining([
          { node: one.nodes.self, address: "one:1" },
          { node: other.nodes.self, address: "other:1" }
        ])
      )
      expect(yield* one.nodes.peers).toEqual([{ node: other.nodes.self, address: "other:1" }])
    }
  )

  live("a node that is interrupted while it takes a session knows that it has it", function* () {
    const url = yield* newStore
    const [one, other] = [yield* node(url), yield* node(url)]
    yield* one.events.open("t/s", "e1")
    const token = one.nodes.tokenOf("t/s")!
    yield* withClient(url, function* (query) {
      yield* query("BEGIN")
      yield* query("SELECT FROM causeway.histories FOR UPDATE")
      const adopting = yield* Effect.fork(other.nodes.adopt("t/s", { node: one.nodes.self, token }, () => Effect.void))
      yield* someoneWaits(url)
      const interrupting = yield* Effect.fork(Fiber.interrupt(adopting))
      yield* Effect.yieldNow()
      yield* query("COMMIT")
      yield* Fiber.join(interrupting)
    })
    yield* Effect.repeat(sql(url, `SELECT FROM causeway.histories WHERE token <> ${token}`), {
      until: taken => taken.length > 0
    })
    expect(other.nodes.tokenOf("t/s")).toBeGreaterThan(token)
    yield* append(other.events, "t/s", 0, ["1"])
  })

  live("of nodes that open a session at once one gets it", function* () {
    const url = yield* newStore
    const nodes = [yield* node(url), yield* node(url), yield* node(url)]
    const sessions = Array.from({ length: 50 }, (_, index) => `t/${index}`)
    const outcomes = yield* together(nodes, ({ events }) =>
      together(sessions, session => Effect.either(events.open(session, "e1")))
    )
    for (const index of sessions.keys()) {
      expect(outcomes.filter(of => Either.isRight(of[index]!))).toHaveLength(1)
    }
  })

  live("what a node leaves at its end can be opened at once, and what is unfinished is listed", function* () {
    const url = yield* newStore
    const { events: other } = yield* node(url)
    const scope = yield* Scope.make()
    const { events: one } = yield* Scope.extend(node(url), scope)
    yield* one.open("t/s", "e1")
    yield* append(one, "t/s", 0, ["1"], { recoveryState: "open" })
    const unfinished = [{ session: "t/s", recoveryState: "open" }]
    expect(yield* one.unfinished).toEqual(unfinished)
    expect(yield* other.unfinished).toEqual([])
    expect(yield* other.abandoned).toEqual([])
    yield* Scope.close(scope, Exit.void)
    expect(yield* other.abandoned).toEqual(unfinished)
    expect(yield* other.unfinished).toEqual(unfinished)
    expect(yield* other.open("t/s", "e2")).toMatchObject({ epoch: "e1", recoveryState: "open" })
    expect(yield* other.abandoned).toEqual([])
  })

  live("of many sessions that a node has left, those who take them over begin with different ones", function* () {
    const url = yield* newStore
    const nodes = [yield* node(url, brief), yield* node(url, brief)]
    yield* sql(
      url,
      `INSERT INTO causeway.histories (session, epoch, head, owner, token, recovery_state)
            SELECT 't/' || i, 'e', 0, '11111111-1111-4111-8111-111111111111', i, 'open' FROM generate_series(1, 5000) i`
    )
    const portions = yield* Effect.forEach(nodes, ({ events }) =>
      // They watch the node for the time of a lease before it is gone.
      Effect.map(
        Effect.repeat(Effect.delay(events.abandoned, "50 millis"), { until: found => found.length > 0 }),
        found => new Set(found.map(({ session }) => session))
      )
    )
    expect(portions.map(({ size }) => size)).toEqual([1000, 1000])
    // 200 by chance.
    expect([...portions[0]!].filter(session => portions[1]!.has(session)).length).toBeLessThan(400)
  })
})
