/** A node that was frozen for longer than its lease, after another one has taken its sessions over. */
import { assert, layer } from "@effect/vitest"
import { Duration, Effect, Fiber, Schedule } from "effect"
import { type Client, completeTurn, createSession } from "./Gateway/Socket/Fixture.ts"
import { reasonToSkip } from "./postgres/Server.ts"
import * as Environment from "./service/Environment.ts"
import * as Gateways from "./service/Gateways.ts"

const sessionCount = 20

const turnWith = (client: Client, content: string) => (sessionId: string) =>
  Effect.zipRight(Gateways.follow(client, sessionId), completeTurn(client, sessionId, content))

layer(Environment.layer, { excludeTestServices: true })(`a frozen gateway ${reasonToSkip ?? ""}`, it => {
  it.scoped.skipIf(reasonToSkip !== undefined)(
    "answers the first request for each session that it has lost as the node that has it now, and logs no lost history",
    () =>
      Effect.gen(function* () {
        const { simulator, start } = yield* Gateways.make({ isLinked: true, env: { SESSION_LEASE: "2 seconds" } })
        const [one, other] = yield* Effect.all([start, start], { concurrency: 2 })
        const mine = yield* one.client
        const sessions = yield* Effect.replicateEffect(createSession(mine), sessionCount)
        yield* Effect.forEach(sessions, turnWith(mine, "hello"))
        // Its subscribers have to connect again; this client has no subscriptions.
        const asking = yield* one.client
        yield* asking.get("session_list", { type: "list_sessions" })
        one.signal("SIGSTOP")
        yield* simulator.awaitState(({ instances }) => instances.length === 0)
        const theirs = yield* other.client
        yield* Effect.forEach(sessions, turnWith(theirs, "are you there?"), { concurrency: "unbounded" })
        const wrong: Array<string> = []
        const send = (sessionId: string) =>
          Effect.tap(asking.ask({ type: "send_message", sessionId, content: "and you?" }), answer => {
            if (answer.type !== "accepted") wrong.push(JSON.stringify(answer))
          })
        const sending = (sessionId: string) =>
          Effect.timed(
            Effect.repeat(send(sessionId), {
              schedule: Schedule.spaced("20 millis"),
              until: ({ type }) => type === "accepted"
            })
          )
        const answers = yield* Effect.fork(Effect.forEach(sessions, sending, { concurrency: "unbounded" }))
        // They are there when it continues.
        yield* Effect.sleep("100 millis")
        one.signal("SIGCONT")
        const times = (yield* Fiber.join(answers)).map(([time]) => Duration.toMillis(time) - 100).sort((a, b) => a - b)
        console.log(
          `First right answers after ${Math.round(times[0]!)} to ${Math.round(times.at(-1)!)} ms, ${wrong.length} wrong ones`
        )
        assert.deepStrictEqual(wrong, [])
        assert.notInclude(one.log(), "history of a session")
      })
  )
})
