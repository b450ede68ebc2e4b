/** Sessions with secrets that a node gives to others when it ends. */
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Logger, Option, Redacted, TestClock } from "effect"
import { NodeUnreachable } from "../../../src/Gateway/Forwarding/NodeLink.ts"
import { alone, type SessionNodesShape } from "../../../src/Gateway/SessionNodes.ts"
import * as Handover from "../../../src/Gateway/Sessions/Handover.ts"
import { SecretPool } from "../../../src/Gateway/Sessions/SecretPool.ts"
import type { HandedOver } from "../../../src/Gateway/Sessions.ts"
import { StoreUnavailable } from "../../../src/Kv/Store.ts"

const secretsOf = (value: string) => ({ TOKEN: Redacted.make(value) })

const valuesOf = (secrets: HandedOver["secrets"]) =>
  Object.fromEntries(Object.entries(secrets).map(([name, secret]) => [name, Redacted.value(secret)]))

const from = { node: "gone", token: 1 }

const limit = "1500 millis"

/** A node that owns some sessions, each with a token. */
const node = (
  given: Partial<SessionNodesShape>,
  owned: ReadonlyArray<readonly [string, number]> = [],
  handOver: (peer: string, handedOver: HandedOver) => Effect.Effect<boolean, NodeUnreachable> = () =>
    Effect.dieMessage("not expected"),
  capacity = 10_000
) => {
  const tokens = new Map(owned)
  const nodes: SessionNodesShape = { ...alone, self: "self", tokenOf: session => tokens.get(session), ...given }
  const secrets = new SecretPool(capacity, () => undefined, nodes.tokenOf)
  const handover = Handover.make({
    nodes,
    secrets,
    link: Option.some({
      send: () => Effect.dieMessage("not expected"),
      handOver: (peer, handedOver) => handOver(peer.node, handedOver)
    }),
    isClosing: () => false
  })
  return { handover, secrets, tokens }
}

const peers = (...names: ReadonlyArray<string>) =>
  Effect.succeed(names.map(name => ({ node: name, address: `${name}:1` })))

describe("Handover", () => {
  it.effect("gives each session to a node that takes it, with the secrets and what it is owned with", () =>
    Effect.gen(function* () {
      const taken: Array<readonly [string, HandedOver]> = []
      const { handover, secrets } = node(
        { peers: peers("a", "b", "c") },
        [
          ["t/1", 11],
          ["t/2", 12],
          ["t/3", 13]
        ],
        (peer, handedOver) =>
          peer === "a"
            ? Effect.fail(new NodeUnreachable({ reason: "test" }))
            : Effect.sync(() => taken.push([peer, handedOver]) > 0)
      )
      for (const session of ["t/1", "t/2", "t/3", "t/not owned"]) yield* secrets.put(session, secretsOf(session))
      yield* handover.give(session => session !== "t/3", limit)
      assert.sameDeepMembers(
        taken.map(([peer, { from, secrets, session }]) => [peer, session, from, valuesOf(secrets)]),
        [
          ["b", "t/1", { node: "self", token: 11 }, { TOKEN: "t/1" }],
          ["b", "t/2", { node: "self", token: 12 }, { TOKEN: "t/2" }]
        ]
      )
      assert.deepStrictEqual(secrets.sessions(), ["t/3", "t/not owned"])
    })
  )

  it.effect("keeps what nobody takes, and ends where nodes do not answer", () =>
    Effect.gen(function* () {
      const refused = node({ peers: peers("a", "b") }, [["t/1", 1]], () => Effect.succeed(false))
      yield* refused.secrets.put("t/1", secretsOf("x"))
      yield* refused.handover.give(() => true, limit)
      assert.isTrue(refused.secrets.has("t/1"))
      const alone = node({ peers: peers() }, [["t/1", 1]])
      yield* alone.secrets.put("t/1", secretsOf("x"))
      yield* alone.handover.give(() => true, limit)
      assert.isTrue(alone.secrets.has("t/1"))
    })
  )

  it.effect("loses nothing by nodes that do not answer, as long as one does", () =>
    Effect.gen(function* () {
      const sessions = Array.from({ length: 400 }, (_, index) => `t/${index}`)
      const asked = new Map<string, number>()
      const { handover, secrets } = node(
        { peers: peers("hung", "well", "silent") },
        sessions.map(session => [session, 1]),
        peer => {
          asked.set(peer, (asked.get(peer) ?? 0) + 1)
          return peer === "well" ? Effect.succeed(true) : Effect.never
        },
        1_000_000
      )
      for (const session of sessions) yield* secrets.put(session, secretsOf("x"))
      const giving = yield* Effect.fork(handover.give(() => true, limit))
      yield* TestClock.adjust("2 seconds")
      yield* Fiber.join(giving)
      assert.deepStrictEqual(secrets.sessions(), [])
      // They are not asked again for each session.
      assert.isAtMost(asked.get("hung")! + asked.get("silent")!, 64)
    })
  )

  it.effect("asks a node that was slow again where there is no other", () =>
    Effect.gen(function* () {
      const sessions = Array.from({ length: 100 }, (_, index) => `t/${index}`)
      let asked = 0
      const { handover, secrets } = node(
        { peers: peers("a") },
        sessions.map(session => [session, 1]),
        () => (asked++ === 0 ? Effect.never : Effect.succeed(true)),
        1_000_000
      )
      for (const session of sessions) yield* secrets.put(session, secretsOf("x"))
      const giving = yield* Effect.fork(handover.give(() => true, limit))
      yield* TestClock.adjust("2 seconds")
      yield* Fiber.join(giving)
      assert.deepStrictEqual(secrets.sessions(), ["t/0"])
    })
  )

  it.effect("waits for the nodes that answer slowly for as long as there is time, whatever the others do", () =>
    Effect.gen(function* () {
      const slow = Effect.delay(Effect.succeed(true), "600 millis")
      const silent = Effect.never
      const refusing = Effect.succeed(false)
      for (const answers of [{ slow }, { silent, slow }, { slow, silent }, { slow, refusing, silent }]) {
        const sessions = ["t/1", "t/2", "t/3"]
        const { handover, secrets } = node(
          { peers: peers(...Object.keys(answers)) },
          sessions.map(session => [session, 1]),
          peer => (answers as Record<string, Effect.Effect<boolean>>)[peer]!
        )
        for (const session of sessions) yield* secrets.put(session, secretsOf("x"))
        const giving = yield* Effect.fork(handover.give(() => true, limit))
        yield* TestClock.adjust("2 seconds")
        yield* Fiber.join(giving)
        assert.deepStrictEqual(secrets.sessions(), [], Object.keys(answers).join())
      }
    })
  )

  it.effect("stops waiting for the others when one has taken a session", () =>
    Effect.gen(function* () {
      const stopped: Array<string> = []
      const { handover, secrets } = node({ peers: peers("a", "b", "c") }, [["t/1", 1]], peer =>
        peer === "b"
          ? Effect.succeed(true)
          : Effect.onInterrupt(Effect.never, () => Effect.sync(() => stopped.push(peer)))
      )
      yield* secrets.put("t/1", secretsOf("x"))
      const giving = yield* Effect.fork(handover.give(() => true, limit))
      yield* TestClock.adjust("500 millis")
      yield* Fiber.join(giving)
      assert.deepStrictEqual([secrets.sessions(), stopped], [[], ["a"]])
    })
  )

  it.effect("tells the operator how many sessions are left without their secrets, and why", () =>
    Effect.gen(function* () {
      const cases: ReadonlyArray<readonly [string, Parameters<typeof node>[0], Parameters<typeof node>[2]]> = [
        ["no other node takes requests", { peers: peers() }, undefined],
        [
          "the other nodes are not known: gone",
          { peers: Effect.fail(new StoreUnavailable({ reason: "gone" })) },
          undefined
        ],
        ["the other nodes did not take them", { peers: peers("a") }, () => Effect.succeed(false)],
        ["it took longer than 1s 500ms", { peers: peers("a") }, () => Effect.never],
        ["they could not be stopped in time", { peers: peers("a") }, () => Effect.succeed(true)]
      ]
      for (const [reason, nodes, handOver] of cases) {
        const { handover, secrets } = node(
          nodes,
          [
            ["t/1", 1],
            ["t/busy", 2]
          ],
          handOver
        )
        for (const session of ["t/1", "t/busy"]) yield* secrets.put(session, secretsOf("x"))
        const logged: Array<unknown> = []
        const logger = Logger.make(({ annotations, logLevel }) =>
          logged.push([logLevel.label, Object.fromEntries(annotations)])
        )
        const giving = yield* Effect.fork(
          Effect.provide(
            handover.give(session => session !== "t/busy", limit),
            Logger.replace(Logger.defaultLogger, logger)
          )
        )
        yield* TestClock.adjust("2 seconds")
        yield* Fiber.join(giving)
        const left = secrets.sessions().length
        assert.deepStrictEqual(logged, [["WARN", { given: 2 - left, left, reason }]])
      }
    })
  )

  it.effect("takes a session with its secrets, which are valid once the session is this node's", () =>
    Effect.gen(function* () {
      const { handover, secrets, tokens } = node({
        adopt: (session, _, prepare) =>
          Effect.gen(function* () {
            yield* prepare(7)
            // It is not this node's yet.
            assert.deepStrictEqual(secrets.get(session), {})
            tokens.set(session, 7)
            return true
          })
      })
      assert.isTrue(yield* handover.adopt({ session: "t/1", from, secrets: secretsOf("x") }))
      assert.deepStrictEqual(valuesOf(secrets.get("t/1")), { TOKEN: "x" })
      tokens.set("t/1", 8)
      assert.deepStrictEqual(secrets.get("t/1"), {})
    })
  )

  it.effect("keeps nothing of a session that another node has, or that there is no memory for", () =>
    Effect.gen(function* () {
      const failure = new StoreUnavailable({ reason: "test" })
      for (const end of [Effect.succeed(false), Effect.fail(failure)]) {
        const { handover, secrets } = node({ adopt: (_, __, prepare) => Effect.zipRight(prepare(7), end) })
        yield* Effect.either(handover.adopt({ session: "t/1", from, secrets: secretsOf("x") }))
        assert.isFalse(secrets.has("t/1"))
      }
      const full = node({ adopt: (_, __, prepare) => Effect.as(prepare(7), true) }, undefined, undefined, 100)
      const refused = yield* Effect.flip(
        full.handover.adopt({ session: "t/1", from, secrets: secretsOf("x".repeat(100)) })
      )
      assert.strictEqual(refused._tag, "SessionsBusy")
    })
  )

  it.effect("keeps the secrets of a session that became its own although the other node is gone", () =>
    Effect.gen(function* () {
      const sent = yield* Deferred.make<void>()
      const done = yield* Deferred.make<void>()
      const { handover, secrets, tokens } = node({
        adopt: (session, _, prepare) =>
          Effect.zipRight(
            prepare(7),
            Effect.uninterruptible(
              Effect.gen(function* () {
                yield* Deferred.succeed(sent, undefined)
                yield* Deferred.await(done)
                tokens.set(session, 7)
                return true
              })
            )
          )
      })
      const adopting = yield* Effect.fork(handover.adopt({ session: "t/1", from, secrets: secretsOf("x") }))
      yield* Deferred.await(sent)
      const interrupting = yield* Effect.fork(Fiber.interrupt(adopting))
      yield* Effect.yieldNow()
      yield* Deferred.succeed(done, undefined)
      assert.isTrue(Exit.isInterrupted(yield* Fiber.join(interrupting)))
      assert.deepStrictEqual(valuesOf(secrets.get("t/1")), { TOKEN: "x" })
    })
  )

  it.effect("does not take a session that it owns, or believes to own, as it would drop the secrets of that", () =>
    Effect.gen(function* () {
      const { handover, secrets } = node({ adopt: (_, __, prepare) => Effect.as(prepare(9), true) }, [["t/1", 3]])
      yield* secrets.put("t/1", secretsOf("newer"))
      assert.isFalse(yield* handover.adopt({ session: "t/1", from, secrets: secretsOf("older") }))
      assert.deepStrictEqual(valuesOf(secrets.get("t/1")), { TOKEN: "newer" })
    })
  )
})
