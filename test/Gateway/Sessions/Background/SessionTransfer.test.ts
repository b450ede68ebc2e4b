/** Sessions with secrets that a node transfers to other nodes when it shuts down. */
import { assert, describe } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Logger, Option, Redacted, TestClock } from "effect"
import { NodeUnreachable } from "../../../../src/Gateway/Forwarding/NodeLink.ts"
import { alone, type SessionNodesShape } from "../../../../src/Gateway/SessionNodes.ts"
import { SessionTransfer } from "../../../../src/Gateway/Sessions/Background/SessionTransfer.ts"
import { SecretPool } from "../../../../src/Gateway/Sessions/Session/SecretPool.ts"
import type { TransferredSession } from "../../../../src/Gateway/Sessions.ts"
import { StoreUnavailable } from "../../../../src/Kv/Store.ts"
import { test } from "../../../Tests.ts"

const secretsOf = (value: string) => ({ TOKEN: Redacted.make(value) })

const valuesOf = (secrets: TransferredSession["secrets"]) =>
  Object.fromEntries(Object.entries(secrets).map(([name, secret]) => [name, Redacted.value(secret)]))

const from = { node: "gone", token: 1 }

const timeout = "1500 millis"

/** A node that owns some sessions, each with a token. */
const node = (
  given: Partial<SessionNodesShape>,
  owned: ReadonlyArray<readonly [string, number]> = [],
  answer: (peer: string, transferred: TransferredSession) => Effect.Effect<boolean, NodeUnreachable> = () =>
    Effect.dieMessage("not expected"),
  capacity = 10_000,
  isClosing = false
) => {
  const tokens = new Map(owned)
  const nodes: SessionNodesShape = { ...alone, self: "self", tokenOf: session => tokens.get(session), ...given }
  const secrets = new SecretPool(capacity, () => undefined, nodes.tokenOf)
  const transfer = new SessionTransfer({
    nodes,
    secrets,
    link: Option.some({
      send: () => Effect.dieMessage("not expected"),
      activity: () => Effect.dieMessage("not expected"),
      transfer: (peer, transferred) => answer(peer.node, transferred)
    }),
    isClosing: () => isClosing
  })
  return { transfer, secrets, tokens }
}

const peers = (...names: ReadonlyArray<string>) =>
  Effect.succeed(names.map(name => ({ node: name, address: `${name}:1` })))

describe("The transfer of sessions", () => {
  test.effect(
    "sends each session to a node that takes it, with its secrets and the fencing token of its owner",
    function* () {
      const taken: Array<readonly [string, TransferredSession]> = []
      const { transfer, secrets } = node(
        { peers: peers("a", "b", "c") },
        [
          ["t/1", 11],
          ["t/2", 12],
          ["t/3", 13]
        ],
        (peer, transferred) =>
          peer === "a"
            ? Effect.fail(new NodeUnreachable({ reason: "test" }))
            : Effect.sync(() => taken.push([peer, transferred]) > 0)
      )
      for (const session of ["t/1", "t/2", "t/3", "t/not owned"]) yield* secrets.put(session, secretsOf(session))
      yield* transfer.send(session => session !== "t/3", timeout)
      assert.sameDeepMembers(
        taken.map(([peer, { from, secrets, session }]) => [peer, session, from, valuesOf(secrets)]),
        [
          ["b", "t/1", { node: "self", token: 11 }, { TOKEN: "t/1" }],
          ["b", "t/2", { node: "self", token: 12 }, { TOKEN: "t/2" }]
        ]
      )
      assert.deepStrictEqual(secrets.sessions(), ["t/3", "t/not owned"])
    }
  )

  test.effect("keeps the secrets of sessions that no node takes", function* () {
    const refused = node({ peers: peers("a", "b") }, [["t/1", 1]], () => Effect.succeed(false))
    yield* refused.secrets.put("t/1", secretsOf("x"))
    yield* refused.transfer.send(() => true, timeout)
    assert.isTrue(refused.secrets.has("t/1"))
    const alone = node({ peers: peers() }, [["t/1", 1]])
    yield* alone.secrets.put("t/1", secretsOf("x"))
    yield* alone.transfer.send(() => true, timeout)
    assert.isTrue(alone.secrets.has("t/1"))
  })

  test.effect("loses no secrets if some nodes do not answer and one does", function* () {
    const sessions = Array.from({ length: 400 }, (_, index) => `t/${index}`)
    const asked = new Map<string, number>()
    const { transfer, secrets } = node(
      { peers: peers("hung", "well", "silent") },
      sessions.map(session => [session, 1]),
      peer => {
        asked.set(peer, (asked.get(peer) ?? 0) + 1)
        return peer === "well" ? Effect.succeed(true) : Effect.never
      },
      1_000_000
    )
    for (const session of sessions) yield* secrets.put(session, secretsOf("x"))
    const sending = yield* Effect.fork(transfer.send(() => true, timeout))
    yield* TestClock.adjust("2 seconds")
    yield* Fiber.join(sending)
    assert.deepStrictEqual(secrets.sessions(), [])
    // They are not asked again for each session.
    assert.isAtMost(asked.get("hung")! + asked.get("silent")!, 64)
  })

  test.effect("asks a node that did not answer in time again if there is no other node", function* () {
    const sessions = Array.from({ length: 100 }, (_, index) => `t/${index}`)
    let asked = 0
    const { transfer, secrets } = node(
      { peers: peers("a") },
      sessions.map(session => [session, 1]),
      () => (asked++ === 0 ? Effect.never : Effect.succeed(true)),
      1_000_000
    )
    for (const session of sessions) yield* secrets.put(session, secretsOf("x"))
    const sending = yield* Effect.fork(transfer.send(() => true, timeout))
    yield* TestClock.adjust("2 seconds")
    yield* Fiber.join(sending)
    assert.deepStrictEqual(secrets.sessions(), ["t/0"])
  })

  test.effect("waits for slow nodes until the timeout, whatever the others do", function* () {
    const slow = Effect.delay(Effect.succeed(true), "600 millis")
    const silent = Effect.never
    const refusing = Effect.succeed(false)
    for (const answers of [{ slow }, { silent, slow }, { slow, silent }, { slow, refusing, silent }]) {
      const sessions = ["t/1", "t/2", "t/3"]
      const { transfer, secrets } = node(
        { peers: peers(...Object.keys(answers)) },
        sessions.map(session => [session, 1]),
        peer => (answers as Record<string, Effect.Effect<boolean>>)[peer]!
      )
      for (const session of sessions) yield* secrets.put(session, secretsOf("x"))
      const sending = yield* Effect.fork(transfer.send(() => true, timeout))
      yield* TestClock.adjust("2 seconds")
      yield* Fiber.join(sending)
      assert.deepStrictEqual(secrets.sessions(), [], Object.keys(answers).join())
    }
  })

  test.effect("stops waiting for the others when one has taken a session", function* () {
    const stopped: Array<string> = []
    const { transfer, secrets } = node({ peers: peers("a", "b", "c") }, [["t/1", 1]], peer =>
      peer === "b"
        ? Effect.succeed(true)
        : Effect.onInterrupt(Effect.never, () => Effect.sync(() => stopped.push(peer)))
    )
    yield* secrets.put("t/1", secretsOf("x"))
    const sending = yield* Effect.fork(transfer.send(() => true, timeout))
    yield* TestClock.adjust("500 millis")
    yield* Fiber.join(sending)
    assert.deepStrictEqual([secrets.sessions(), stopped], [[], ["a"]])
  })

  test.effect("logs how many sessions lose their secrets, and why", function* () {
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
    for (const [reason, nodes, answer] of cases) {
      const { transfer, secrets } = node(
        nodes,
        [
          ["t/1", 1],
          ["t/busy", 2]
        ],
        answer
      )
      for (const session of ["t/1", "t/busy"]) yield* secrets.put(session, secretsOf("x"))
      const logged: Array<unknown> = []
      const logger = Logger.make(({ annotations, logLevel }) =>
        logged.push([logLevel.label, Object.fromEntries(annotations)])
      )
      const sending = yield* Effect.fork(
        Effect.provide(
          transfer.send(session => session !== "t/busy", timeout),
          Logger.replace(Logger.defaultLogger, logger)
        )
      )
      yield* TestClock.adjust("2 seconds")
      yield* Fiber.join(sending)
      const left = secrets.sessions().length
      assert.deepStrictEqual(logged, [["WARN", { given: 2 - left, left, reason }]])
    }
  })

  test.effect("adopts a session with its secrets, which are valid once the session belongs to this node", function* () {
    const { transfer, secrets, tokens } = node({
      adopt: (session, _, prepare) =>
        Effect.gen(function* () {
          yield* prepare(7)
          // It does not belong to this node yet.
          assert.deepStrictEqual(secrets.get(session), {})
          tokens.set(session, 7)
          return true
        })
    })
    assert.isTrue(yield* transfer.adopt({ session: "t/1", from, secrets: secretsOf("x") }))
    assert.deepStrictEqual(valuesOf(secrets.get("t/1")), { TOKEN: "x" })
    tokens.set("t/1", 8)
    assert.deepStrictEqual(secrets.get("t/1"), {})
  })

  test.effect(
    "keeps nothing of a session that belongs to another node, or whose secrets exceed the memory limit",
    function* () {
      const failure = new StoreUnavailable({ reason: "test" })
      for (const end of [Effect.succeed(false), Effect.fail(failure)]) {
        const { transfer, secrets } = node({ adopt: (_, __, prepare) => Effect.zipRight(prepare(7), end) })
        yield* Effect.either(transfer.adopt({ session: "t/1", from, secrets: secretsOf("x") }))
        assert.isFalse(secrets.has("t/1"))
      }
      const full = node({ adopt: (_, __, prepare) => Effect.as(prepare(7), true) }, undefined, undefined, 100)
      const refused = yield* Effect.flip(
        full.transfer.adopt({ session: "t/1", from, secrets: secretsOf("x".repeat(100)) })
      )
      assert.strictEqual(refused._tag, "SessionsBusy")
    }
  )

  test.effect("keeps the secrets of a session that it has adopted even if the caller was interrupted", function* () {
    const sent = yield* Deferred.make<void>()
    const done = yield* Deferred.make<void>()
    const { transfer, secrets, tokens } = node({
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
    const adopting = yield* Effect.fork(transfer.adopt({ session: "t/1", from, secrets: secretsOf("x") }))
    yield* Deferred.await(sent)
    const interrupting = yield* Effect.fork(Fiber.interrupt(adopting))
    yield* Effect.yieldNow()
    yield* Deferred.succeed(done, undefined)
    assert.isTrue(Exit.isInterrupted(yield* Fiber.join(interrupting)))
    assert.deepStrictEqual(valuesOf(secrets.get("t/1")), { TOKEN: "x" })
  })

  test.effect("takes no session while it shuts down itself", function* () {
    const { transfer } = node({ adopt: () => Effect.succeed(true) }, [], undefined, undefined, true)
    assert.isFalse(yield* transfer.adopt({ session: "t/1", from, secrets: secretsOf("new") }))
  })

  test.effect("refuses a session that it already owns, so that newer secrets are not lost", function* () {
    const { transfer, secrets } = node({ adopt: (_, __, prepare) => Effect.as(prepare(9), true) }, [["t/1", 3]])
    yield* secrets.put("t/1", secretsOf("newer"))
    assert.isFalse(yield* transfer.adopt({ session: "t/1", from, secrets: secretsOf("older") }))
    assert.deepStrictEqual(valuesOf(secrets.get("t/1")), { TOKEN: "newer" })
  })
})
