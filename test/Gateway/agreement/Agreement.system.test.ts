/**
 * Clients of five libraries follow the same sessions while the service is killed and started again. In the end all have the
 * same messages, and each message was carried out once.
 */
import { assert, layer } from "@effect/vitest"
import { Effect, Exit, Fiber, Option } from "effect"
import { type MockInstance, vi } from "vitest"
import { WebSocket } from "ws"
import { makeSessions } from "../../../src/Client/Client.ts"
import { Changes } from "../../../src/Simulator/Changes.ts"
import { Instance } from "../../../src/Simulator/Instance.ts"
import * as Simulator from "../../../src/Simulator/Simulator.ts"
import { createDatabase } from "../../postgres/Databases.ts"
import { reasonToSkip } from "../../postgres/Server.ts"
import { times } from "../../Scale.ts"
import * as Environment from "../../service/Environment.ts"
import { nodeSecret } from "../../service/Gateways.ts"
import type * as Service from "../../service/Service.ts"
import { temporaryDirectory } from "../../TemporaryDirectory.ts"
import { ignoringCuts, quiet } from "../AgUi/Fixture.ts"
import { secret, token } from "../survival/Token.ts"
import * as Nodes from "./Nodes.ts"
import { choice, ends, Talk } from "./Talk.ts"

const seed = process.env.CLIENTS_SEED ?? "clients"

/** 100 with `TEST_SCALE=25`. */
const sessionCount = times(4)
const kills = times(1) >= 5 ? 6 : 3
/** The turns of a session at least, before the last one. */
const turns = 3

/** Events of all sessions in a second, about, however many there are. */
const eventsPerSecond = 400

/** Sessions of one connection of our own client, which has a bound of messages a second. */
const sessionsOfConnection = 10

/** The messages that the platform has received, by their text, with the turns of each. */
const received = (spy: MockInstance<Instance["message"]>) => {
  const messages = new Map<string, Array<string>>()
  for (const [content, turnId = ""] of spy.mock.calls) messages.set(content, [...(messages.get(content) ?? []), turnId])
  return messages
}

type Env = Readonly<Record<string, string>>

/** The options of the nodes of each storage. */
const storages = {
  "SQLite, with one process": (env: Env) =>
    Effect.map(temporaryDirectory, (directory): ReadonlyArray<Service.Options> => [{ directory, env }]),
  "PostgreSQL, with three nodes": (env: Env) =>
    Effect.gen(function* () {
      const url = yield* Effect.promise(() => createDatabase())
      const linked = {
        STORE_URL: url,
        NODE_ADDRESS: "127.0.0.1:0",
        NODE_SECRET: nodeSecret,
        SESSION_LEASE: "3 seconds"
      }
      return yield* Effect.replicateEffect(
        Effect.map(temporaryDirectory, (directory): Service.Options => ({ directory, env: { ...env, ...linked } })),
        3
      )
    })
}

layer(Environment.layer, { excludeTestServices: true })("clients of five libraries", it => {
  const agree = (name: keyof typeof storages) =>
    it.scoped(`have the same in the end on ${name}, whatever is killed, and nothing runs twice or is lost`, () =>
      Effect.gen(function* () {
        const choose = choice(`${seed} ${name}`)
        const spy = yield* Effect.acquireRelease(
          Effect.sync(() => vi.spyOn(Instance.prototype, "message")),
          spy => Effect.sync(() => spy.mockRestore())
        )
        yield* Effect.all([ignoringCuts, quiet])
        const simulator = yield* Simulator.make({
          ...{ seed, pace: `${(1000 * sessionCount) / eventsPerSecond} millis` },
          limits: { instances: 10 * sessionCount }
        })
        const bearer = yield* token("acme")
        const nodes = yield* Effect.flatMap(
          storages[name]({
            AGENT_PLATFORM_URL: simulator.platformUrl,
            GATEWAY_JWT_SECRET: secret,
            LOG_LEVEL: "info"
          }),
          Nodes.start
        )
        const onEvent = new Changes()
        const talks: Array<Talk> = []
        const events = () => talks.reduce((sum, { seq }) => sum + seq, 0)
        const killing = Effect.gen(function* () {
          for (let kill = 0; kill < kills; kill++) {
            // Early kills hit creations, activations and replays, late ones streams.
            const target = events() + sessionCount * choose([2, 8, 20, 40], "kill", kill)
            yield* onEvent.until(() => (events() >= target ? Option.some(undefined) : Option.none()))
            yield* nodes.kill(kill % nodes.count)
          }
        })
        const connections = yield* Effect.forEach(
          Array.from({ length: 2 * Math.ceil(sessionCount / sessionsOfConnection / 2) }, (_, index) => index),
          index =>
            Effect.acquireRelease(
              Effect.sync(() =>
                makeSessions({
                  baseUrl: nodes.url,
                  token: bearer,
                  transport: index % 2 === 0 ? "webSocket" : "http",
                  WebSocket: WebSocket as never
                })
              ),
              sessions => Effect.sync(() => sessions.close())
            )
        )
        const test = Effect.gen(function* () {
          for (let index = 0; index < sessionCount; index++) {
            talks.push(
              yield* Talk.open(nodes, choose, index, bearer, connections[index % connections.length]!, onEvent)
            )
          }
          const killed = yield* Effect.forkScoped(killing)
          const isOver = Effect.map(Fiber.poll(killed), Option.isSome)
          yield* Effect.forEach(
            talks,
            talk =>
              Effect.gen(function* () {
                let number = 0
                for (; number < turns || !(yield* isOver); number++) yield* talk.turn(number)
                yield* talk.turn(number, true)
              }),
            { concurrency: "unbounded" }
          )
          yield* ends(() => "the kills", Fiber.join(killed))
          const judged = yield* Effect.forEach(talks, talk => talk.judge)
          const record = received(spy)
          assert.deepStrictEqual(
            talks.flatMap(talk => talk.lost(record)),
            []
          )
          const count = judged.reduce((sum, { turns }) => sum + turns, 0)
          const runs = judged.reduce((sum, { runs }) => sum + runs, 0)
          console.log(
            `${name}: ${talks.length} sessions, ${count} turns (${runs} with runs of AG-UI), ${events()} events, ${kills} kills`
          )
        })
        yield* Effect.onExit(test, exit =>
          Effect.sync(() => {
            if (Exit.isFailure(exit)) console.error(`CLIENTS_SEED=${seed}\n${nodes.notes.join("\n")}`)
          })
        )
      })
    )

  agree("SQLite, with one process")
  if (reasonToSkip === undefined) agree("PostgreSQL, with three nodes")
  else it.skip(`have the same in the end on PostgreSQL, ${reasonToSkip}`)
})
