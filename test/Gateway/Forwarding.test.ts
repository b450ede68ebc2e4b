import { assert, describe, it } from "@effect/vitest"
import { type Context, Effect, Fiber, Option, TestClock } from "effect"
import {
  type Command,
  decodeCommand,
  encodeCommand,
  NodeLink,
  type NodeLinkError,
  NodeRefused,
  NodeSilent,
  NodeUnreachable,
  type Reply
} from "../../src/Gateway/Forwarding/NodeLink.ts"
import * as Forwarding from "../../src/Gateway/Forwarding.ts"
import { type Call, Refused } from "../../src/Gateway/Requests.ts"
import { SessionElsewhere } from "../../src/Gateway/SessionEvents.ts"
import { alone, type Peer, SessionNodes } from "../../src/Gateway/SessionNodes.ts"
import { type Caller, SessionNotFound, Sessions, SessionsBusy } from "../../src/Gateway/Sessions.ts"
import { StoreUnavailable } from "../../src/Kv/Store.ts"
import { given } from "../Given.ts"
import { test } from "../Tests.ts"

const sessionId = "0".repeat(36)
const caller: Caller = { tenant: "acme", actor: "alice" }

const message: Call = { type: "send_message", id: "1", sessionId, content: "hello" }
const interrupt: Call = { type: "interrupt_turn", id: "1", sessionId }
const deletion: Call = { type: "delete_session", id: "1", sessionId }

const accepted: Reply = { is: "answer", answer: { type: "accepted", id: "1", turnId: "t" } }
const notOwner: Reply = { is: "not_owner" }
const silent = new NodeSilent({ reason: "test" })
const gone = new NodeUnreachable({ reason: "test" })
const refused = new NodeRefused({ reason: "test" })
const busy = new SessionsBusy({ message: "test" })
const unavailable = new StoreUnavailable({ reason: "test" })
const overloaded: Reply = { is: "failure", failure: { code: "rate_limited", message: "test" } }

const elsewhere = Effect.fail(new SessionElsewhere({ session: `acme/${sessionId}` }))

const unused = () => Effect.dieMessage("not expected")

/**
 * A node whose own sessions answer `here`, in turn, and whose owner's answers are `replies`. The last ones are
 * repeated.
 */
const node = (
  replies: ReadonlyArray<Reply | NodeLinkError | SessionsBusy>,
  owners: ReadonlyArray<Peer | StoreUnavailable | undefined> = [{ node: "a", address: "a:1" }],
  here: ReadonlyArray<Effect.Effect<string, SessionElsewhere | SessionNotFound | StoreUnavailable>> = [elsewhere]
) =>
  Effect.gen(function* () {
    const sent: Array<Command> = []
    const callers: Array<Caller> = []
    let lookups = 0
    const at = <A>(all: ReadonlyArray<A>, index: number): A => all[Math.min(index, all.length - 1)]!
    const local = (caller: Caller) => Effect.suspend(() => at(here, callers.push(caller) - 1))
    const sessions: Context.Tag.Service<Sessions> = {
      ...{ create: unused, list: unused, get: unused, start: unused, stop: unused, subscribe: unused, answer: unused },
      ...{ listFiles: unused, readFile: unused, fileHistory: unused, fileAtIteration: unused },
      send: local,
      interrupt: local,
      remove: caller => Effect.asVoid(local(caller)),
      adopt: unused,
      subscriptions: () => 0
    }
    const execute = yield* Forwarding.make.pipe(
      Effect.provideService(Sessions, sessions),
      Effect.provideService(SessionNodes, {
        ...alone,
        ownerOf: () =>
          Effect.suspend(() => {
            const owner = at(owners, lookups++)
            return owner instanceof StoreUnavailable ? owner : Effect.succeed(Option.fromNullable(owner))
          })
      }),
      Effect.provideService(
        NodeLink,
        Option.some({
          transfer: unused,
          activity: unused,
          send: (_: unknown, command: Command) =>
            Effect.suspend((): Effect.Effect<Reply, NodeLinkError | SessionsBusy> => {
              const reply = at(replies, sent.push(command) - 1)
              return "is" in reply ? Effect.succeed(reply) : reply
            })
        })
      )
    )
    const ask = (request: Call) =>
      Effect.gen(function* () {
        const fiber = yield* Effect.fork(Effect.either(execute(caller, request)))
        yield* TestClock.adjust("1 minute")
        return yield* Fiber.join(fiber)
      })
    return { ask, sent, callers, lookups: () => lookups }
  })

/** Tests of a node, which is made of these. */
const forwarding = given(it.scoped, (parts: Parameters<typeof node> = [[]]) => node(...parts))

const failureIn = (result: { readonly _tag: string; readonly left?: unknown }) =>
  result.left instanceof Refused ? result.left.failure : result

describe("Forwarding", () => {
  forwarding(
    "sends a request for a session of another node there, in the name of the caller",
    [[accepted]],
    function* ({ ask, lookups, sent }) {
      assert.deepInclude(yield* ask(message), { right: { type: "accepted", id: "1", turnId: "t" } })
      assert.deepInclude(sent[0], { node: "a", tenant: "acme", actor: "alice", request: message })
      // The owner is remembered.
      yield* ask(message)
      assert.strictEqual(lookups(), 1)
      assert.notStrictEqual(sent[0]!.commandId, sent[1]!.commandId)
    }
  )

  test.effect("passes on what the other node refuses with", function* () {
    const failure = { code: "too_large", message: "no" } as const
    const { ask } = yield* node([{ is: "failure", failure }])
    assert.deepStrictEqual(failureIn(yield* ask(message)), failure)
  })

  test.effect("repeats a command that was displaced, and does not know whether it was carried out", function* () {
    const displaced: Reply = { is: "displaced" }
    const { ask, sent } = yield* node([displaced, accepted])
    assert.deepInclude(yield* ask(message), { right: { type: "accepted", id: "1", turnId: "t" } })
    assert.strictEqual(sent[0]!.commandId, sent[1]!.commandId)
    const refused = yield* node([displaced, busy])
    assert.deepInclude(failureIn(yield* refused.ask(message)), { code: "timeout", retryable: false })
    const once = yield* node([displaced, accepted])
    assert.deepInclude(failureIn(yield* once.ask(interrupt)), { code: "timeout" })
  })

  test.effect("looks the owner up again where the session has moved, and tries here first", function* () {
    const owners = [
      { node: "a", address: "a:1" },
      { node: "b", address: "b:1" }
    ]
    const moved = yield* node([notOwner, accepted], owners)
    assert.strictEqual((yield* moved.ask(message))._tag, "Right")
    assert.deepStrictEqual(
      moved.sent.map(({ node }) => node),
      ["a", "b"]
    )
    const taken = yield* node([notOwner], owners, [elsewhere, Effect.succeed("t")])
    assert.strictEqual((yield* taken.ask(message))._tag, "Right")
    assert.lengthOf(taken.sent, 1)
  })

  forwarding(
    "repeats a message whose answer was lost under the same id, here too",
    [[silent, silent], undefined, [elsewhere, elsewhere, Effect.succeed("t")]],
    function* ({ ask, callers, sent }) {
      assert.strictEqual((yield* ask(message))._tag, "Right")
      const ids = [...sent.map(({ commandId }) => commandId), ...callers.slice(1).map(({ commandId }) => commandId)]
      assert.lengthOf(ids, 4)
      assert.strictEqual(new Set(ids).size, 1)
    }
  )

  forwarding(
    "does not repeat an interrupt without a turn that may have been carried out, and says so",
    [[silent]],
    function* ({ ask, sent }) {
      assert.deepInclude(failureIn(yield* ask(interrupt)), { code: "timeout", retryable: false })
      assert.lengthOf(sent, 1)
      const never = yield* node([gone, accepted])
      assert.strictEqual((yield* never.ask(interrupt))._tag, "Right")
    }
  )

  test.effect(
    "answers at once where the tenant has its share of what may be under way, or another node says so",
    function* () {
      for (const reply of [busy, overloaded]) {
        const { ask, sent } = yield* node([reply])
        const { left } = (yield* ask(message)) as { readonly left: unknown }
        assert.strictEqual(
          left instanceof SessionsBusy ? "rate_limited" : (left as Refused).failure.code,
          "rate_limited"
        )
        assert.lengthOf(sent, 1)
      }
    }
  )

  test.effect("a refusal that may pass does not say that an earlier attempt was not carried out", function* () {
    for (const reply of [busy, overloaded, refused]) {
      const { ask } = yield* node([silent, reply])
      assert.deepInclude(failureIn(yield* ask(message)), { code: "timeout", retryable: false })
      const passing = yield* node([silent, reply, accepted])
      assert.strictEqual((yield* passing.ask(message))._tag, "Right")
    }
    const failure = { code: "session_not_active", message: "no", retryable: false } as const
    const final = yield* node([silent, { is: "failure", failure }])
    assert.deepStrictEqual(failureIn(yield* final.ask(message)), failure)
  })

  test.effect(
    "an owner that cannot be looked up does not say that an earlier attempt was not carried out",
    function* () {
      const owner = { node: "a", address: "a:1" }
      for (const here of [[elsewhere], [elsewhere, Effect.fail(unavailable)]]) {
        const { ask, sent } = yield* node([silent], [owner, unavailable], here)
        assert.deepInclude(failureIn(yield* ask(message)), { code: "timeout", retryable: false })
        assert.lengthOf(sent, 1)
      }
      const passing = yield* node([silent, accepted], [owner, unavailable, owner])
      assert.strictEqual((yield* passing.ask(message))._tag, "Right")
      const never = yield* node([gone], [owner, unavailable])
      assert.deepInclude(yield* never.ask(message), { left: unavailable })
      assert.lengthOf(never.sent, 1)
    }
  )

  test.effect("a session that is not found after a lost answer to its deletion was deleted", function* () {
    const notFound = Effect.fail(new SessionNotFound({ sessionId }))
    const { ask } = yield* node([silent], undefined, [elsewhere, notFound])
    assert.deepInclude(yield* ask(deletion), { right: { type: "session_deleted", id: "1", sessionId } })
    const failure = { code: "not_found", message: "There is no such session" } as const
    const other = yield* node([silent, { is: "failure", failure }])
    assert.strictEqual((yield* other.ask(deletion))._tag, "Right")
    const unknown = yield* node([{ is: "failure", failure }])
    assert.deepStrictEqual(failureIn(yield* unknown.ask(deletion)), failure)
  })

  test.effect(
    "gives up after a few attempts: the client may try again, unless it is not known what was done",
    function* () {
      for (const [replies, owner] of [
        [[gone], { node: "a", address: "a:1" }],
        [[refused], { node: "a", address: "a:1" }],
        [[notOwner], { node: "a", address: "a:1" }],
        [[accepted], { node: "a", address: null }],
        [[accepted], undefined]
      ] as const) {
        const { ask, sent } = yield* node(replies, [owner])
        assert.deepInclude(failureIn(yield* ask(message)), { code: "conflict", retryable: true })
        assert.isAtMost(sent.length, 6)
      }
      const { ask } = yield* node([silent, gone])
      assert.deepInclude(failureIn(yield* ask(message)), { code: "timeout", retryable: false })
    }
  )
})

describe("Command", () => {
  it("is for a session, and bears every request of a client", () => {
    const command = { node: "a", tenant: "acme", actor: "alice", commandId: "c", request: message }
    assert.deepInclude(decodeCommand(encodeCommand(command)), { right: command })
    for (const text of ["", "{}", "null", JSON.stringify({ ...command, request: { type: "ping", id: "1" } })]) {
      assert.strictEqual(decodeCommand(text)._tag, "Left", text)
    }
  })
})
