import { randomUUID } from "node:crypto"
import { assert, layer } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Random, Scope } from "effect"
import * as Simulator from "../../src/Simulator/Simulator.ts"
import { createDatabase } from "../postgres/Databases.ts"
import { reasonToSkip } from "../postgres/Server.ts"
import { isLong, isSoak } from "../Scale.ts"
import * as Environment from "../service/Environment.ts"
import * as InProcess from "../service/InProcess.ts"
import * as Service from "../service/Service.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import * as Client from "./survival/Client.ts"
import { secret, token } from "./survival/Token.ts"
import { Witness } from "./survival/Witness.ts"

const sessionCount = isSoak ? 200 : isLong ? 20 : 4
const kills = isSoak ? 10 : isLong ? 3 : 1

/** Each connection has a bound of messages a second, which these turns stay below. */
const sessionsOfConnection = 10

/** Events of all sessions in a second, about, however many there are. */
const eventsPerSecond = 2000

const tenant = "acme"

const message = (random: Random.Random): Effect.Effect<string> =>
  Effect.gen(function* () {
    const kind = yield* random.next
    if (kind < 0.7) return `/long ${yield* random.nextIntBetween(5, 60)}`
    return kind < 0.85 ? "some words to echo" : "/hang"
  })

/** Turn after turn in one session, until the gateway is gone; some are interrupted. */
const talk = (client: Client.Client, sessionId: string, witness: Witness, random: Random.Random) =>
  Effect.gen(function* () {
    for (;;) {
      const content = yield* message(random)
      const clientMessageId = randomUUID()
      const { turnId = "" } = yield* Client.persist(
        client.get("accepted", id => ({ type: "send_message", id, sessionId, content, clientMessageId }))
      )
      witness.accept(sessionId, turnId)
      if (content === "/hang") {
        yield* Client.persist(client.get("accepted", id => ({ type: "interrupt_turn", id, sessionId, turnId })))
      }
      yield* client.ended(turnId)
    }
  })

/** Waits until no more instances are alive than these. */
const instancesComeTo = (simulator: typeof Simulator.Simulator.Service, count: number) =>
  simulator
    .awaitState(({ instances }) => instances.length <= count)
    .pipe(
      Effect.timeoutTo({
        duration: "2 minutes",
        onSuccess: state => Effect.succeed(state),
        onTimeout: () =>
          Effect.flatMap(simulator.state, ({ instances }) =>
            Effect.dieMessage(`${instances.length} instances are alive; ${count} should be`)
          )
      }),
      Effect.flatten
    )

/** One group for each connection. */
const groups = <A>(sessions: ReadonlyArray<A>): ReadonlyArray<ReadonlyArray<A>> =>
  Array.from({ length: Math.ceil(sessions.length / sessionsOfConnection) }, (_, index) =>
    sessions.slice(index * sessionsOfConnection, (index + 1) * sessionsOfConnection)
  )

/** Where sessions are kept: what the environment of the service says of it. */
const storages = {
  SQLite: Effect.succeed({}),
  PostgreSQL: Effect.map(
    Effect.promise(() => createDatabase()),
    url => ({ STORE_URL: url })
  )
}

layer(Environment.layer, { excludeTestServices: true })("a gateway that is killed", it => {
  const survives = (name: keyof typeof storages) =>
    it.scoped(
      `keeps all delivered events in ${name}, ends each turn once, and leaves no session stuck and no instance running`,
      () =>
        Effect.gen(function* () {
          const storage: Readonly<Record<string, string>> = yield* storages[name]
          const random = Random.make("survival")
          const simulator = yield* Simulator.make({
            seed: "survival",
            pace: `${(1000 * sessionCount) / eventsPerSecond} millis`,
            limits: { instances: 3 * sessionCount, history: 100_000 }
          })
          const directory = yield* temporaryDirectory
          const bearer = yield* token(tenant)
          const witness = new Witness()
          const env = {
            ...storage,
            AGENT_PLATFORM_URL: simulator.platformUrl,
            GATEWAY_JWT_SECRET: secret,
            SESSION_HISTORY_EVENTS: "1000000",
            // It stops all instances at its end; how soon is up to the machine.
            SHUTDOWN_TIMEOUT: "5 minutes",
            LOG_LEVEL: "info"
          }
          const start = Effect.map(Service.start({ directory, env }), service => ({
            ...service,
            url: `${service.url.replace("http", "ws")}/ws`
          }))

          const makeSessions = (url: string) =>
            Effect.forEach(groups(Array.from({ length: sessionCount })), group =>
              Effect.gen(function* () {
                const client = yield* Client.connect(url, bearer, witness)
                return yield* Effect.forEach(group, () =>
                  Client.persist(
                    client.get("session_created", id => ({ type: "create_session", id, agentType: "echo" }))
                  )
                )
              })
            ).pipe(Effect.map(made => made.flat().map(({ session }) => session.id)))

          /** The sessions of a gateway that was killed. In the short form the next one makes them, which is killed too. */
          let sessions: ReadonlyArray<string> = isLong
            ? yield* Effect.scoped(
                Effect.gen(function* () {
                  const service = yield* start
                  const made = yield* makeSessions(service.url)
                  yield* service.end("SIGKILL")
                  return made
                })
              )
            : []

          for (let round = 0; round < kills; round++) {
            // Early kills hit activations and replays, late ones streams.
            const drawn = Math.ceil(Math.exp((yield* random.next) * Math.log(eventsPerSecond * 2)))
            // The only kill of the short form hits open turns.
            const enough = isLong ? drawn : sessionCount * 25
            yield* Effect.scoped(
              Effect.gen(function* () {
                const service = yield* start
                if (sessions.length === 0) sessions = yield* Effect.scoped(makeSessions(service.url))
                const reached = yield* Deferred.make<void>()
                let left = enough
                const onFrame = () => {
                  if (--left === 0) Deferred.unsafeDone(reached, Effect.void)
                }
                const clients = yield* Effect.forEach(groups(sessions), (group, index) =>
                  Effect.forkScoped(
                    Effect.gen(function* () {
                      const client = yield* Client.connect(service.url, bearer, witness, onFrame)
                      yield* Effect.forEach(
                        group,
                        sessionId =>
                          Effect.zipRight(
                            Client.persist(client.follow(sessionId)),
                            talk(client, sessionId, witness, Random.make(`${round} ${index} ${sessionId}`))
                          ),
                        { concurrency: "unbounded", discard: true }
                      )
                    }).pipe(Effect.catchTag("Gone", () => Effect.void))
                  )
                )
                // A client that ends before the gateway does has been refused something.
                yield* Effect.raceFirst(
                  Deferred.await(reached),
                  Effect.zipRight(Fiber.joinAll(clients), Effect.dieMessage("The gateway was gone early"))
                )
                yield* service.end("SIGKILL")
                yield* Fiber.joinAll(clients)
              })
            )
          }

          // The last gateway is not killed.
          const last = yield* Scope.make()
          const served = yield* Scope.extend(
            InProcess.serve({ DATA_DIR: directory, KV_API_KEY: Service.key, ...env }),
            last
          )
          const url = `${served.url.replace("http", "ws")}/ws`
          const whole = new Witness()
          yield* Effect.forEach(
            groups(sessions),
            group =>
              Effect.gen(function* () {
                const resuming = yield* Client.connect(url, bearer, witness)
                yield* Effect.forEach(
                  group,
                  sessionId =>
                    Effect.gen(function* () {
                      yield* Client.persist(resuming.follow(sessionId))
                      const { turnId = "" } = yield* Client.persist(
                        resuming.get("accepted", id => ({
                          type: "send_message",
                          id,
                          sessionId,
                          content: "Are you there?",
                          clientMessageId: "last"
                        }))
                      )
                      witness.accept(sessionId, turnId)
                      assert.strictEqual(yield* resuming.ended(turnId), "turn_completed")
                    }),
                  { concurrency: "unbounded", discard: true }
                )
                // A new client receives the same from the first event on.
                const fresh = yield* Client.connect(url, bearer, whole)
                yield* Effect.forEach(group, sessionId => Client.persist(fresh.follow(sessionId)), {
                  concurrency: "unbounded",
                  discard: true
                })
              }),
            { concurrency: 4, discard: true }
          )
          const problems = sessions.flatMap(sessionId => witness.judge(sessionId, whole.history(sessionId)))
          assert.deepStrictEqual([...witness.contradictions, ...whole.contradictions, ...problems], [])
          assert.isAbove(witness.count, sessionCount * 10)

          // Each session has the instance of its last turn, and earlier instances were stopped.
          const { created, instances } = yield* instancesComeTo(simulator, sessionCount)
          assert.strictEqual(instances.length, sessionCount)
          if (isLong) assert.isAbove(created, sessionCount)
          yield* Scope.close(last, Exit.void)
          yield* instancesComeTo(simulator, 0)
        })
    )

  survives("SQLite")
  if (reasonToSkip === undefined && isLong) survives("PostgreSQL")
  else if (isLong) it.skip(`keeps them in PostgreSQL, ${reasonToSkip}`)
})
