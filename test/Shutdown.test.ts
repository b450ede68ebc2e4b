import * as Http from "node:http"
import * as Net from "node:net"
import { assert, layer } from "@effect/vitest"
import { Effect, Exit, Fiber, type Scope } from "effect"
import { WebSocket } from "ws"
import * as Simulator from "../src/Simulator/Simulator.ts"
import * as Disk from "./faults/Disk.ts"
import * as Gateway from "./Gateway/survival/Client.ts"
import { secret, token } from "./Gateway/survival/Token.ts"
import { Witness } from "./Gateway/survival/Witness.ts"
import { onlyLong } from "./Scale.ts"
import * as Client from "./service/Client.ts"
import * as Environment from "./service/Environment.ts"
import { serve } from "./service/InProcess.ts"
import * as Service from "./service/Service.ts"
import { temporaryDirectory } from "./TemporaryDirectory.ts"

/** The limit of the cases in which it is reached. */
const shortLimit = { SHUTDOWN_TIMEOUT: "2 seconds" }

/** The limit of the others: all waits of a shutdown together leave a third of it to a machine that is slow. */
const longLimit = { SHUTDOWN_TIMEOUT: "30 seconds" }

/** Waits for the end of a process after a signal. The timeout only makes a failure visible. */
const endOf = (service: Service.Starting) =>
  service.ended.pipe(
    Effect.timeoutFail({
      duration: "2 minutes",
      onTimeout: () => new Error(`The service does not end. It said: ${service.log()}`)
    }),
    Effect.orDie
  )

const terminate = (service: Service.Starting) =>
  Effect.zipRight(
    Effect.sync(() => service.signal("SIGTERM")),
    endOf(service)
  )

const peacefully = { code: 0, signal: null, stderr: "" }
const killed = { code: null, signal: "SIGKILL" as const, stderr: "" }

/** A server that takes requests and never answers them. */
const silentServer: Effect.Effect<string, never, Scope.Scope> = Effect.map(
  Effect.acquireRelease(
    Effect.async<{ readonly server: Net.Server; readonly sockets: Set<Net.Socket> }>(resume => {
      const sockets = new Set<Net.Socket>()
      const server = Net.createServer(socket => {
        sockets.add(socket)
        socket.on("error", () => {})
        socket.resume()
      }).listen(0, "127.0.0.1", () => resume(Effect.succeed({ server, sockets })))
    }),
    ({ server, sockets }) =>
      Effect.sync(() => {
        server.close()
        for (const socket of sockets) socket.destroy()
      })
  ),
  ({ server }) => `http://127.0.0.1:${(server.address() as Net.AddressInfo).port}`
)

/** A connection that has sent some bytes, and neither reads nor ends by itself. */
const deaf = (url: string, text: string, halfCloses = false): Effect.Effect<Net.Socket, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.async<Net.Socket>(resume => {
      const socket = Net.connect({ port: Number(new URL(url).port), host: "127.0.0.1", allowHalfOpen: true }, () => {
        socket.pause()
        const done = () => resume(Effect.succeed(socket))
        if (halfCloses) socket.end(text, done)
        else socket.write(text, done)
      })
      socket.on("error", () => {})
    }),
    socket => Effect.sync(() => socket.destroy())
  )

const authorization = `authorization: Bearer ${Service.key}`

const status = (url: string) =>
  Effect.async<number>(resume => {
    Http.get(url, { agent: false }, response => {
      response.resume()
      resume(Effect.succeed(response.statusCode ?? 0))
    }).once("error", error => resume(Effect.die(error)))
  })

/** Waits until a request of a client has led to something; an answer that comes before fails the test. */
const asking = <A, E>(request: Effect.Effect<A, E>, until: Effect.Effect<unknown>) =>
  Effect.gen(function* () {
    const asked = yield* Effect.forkDaemon(request)
    const early = Effect.flatMap(Fiber.await(asked), exit => Effect.dieMessage(`Answered at once: ${exit}`))
    yield* Effect.raceFirst(until, early)
  })

/** A gateway with a simulated platform and a session that runs there. */
const withSession = Effect.gen(function* () {
  const simulator = yield* Simulator.make({ seed: "shutdown" })
  const directory = yield* temporaryDirectory
  const service = yield* Service.start({
    directory,
    env: { ...longLimit, AGENT_PLATFORM_URL: simulator.platformUrl, GATEWAY_JWT_SECRET: secret }
  })
  const client = yield* Gateway.connect(`${service.url.replace("http", "ws")}/ws`, yield* token("acme"), new Witness())
  const { session } = yield* client.get("session_created", id => ({ type: "create_session", id, agentType: "echo" }))
  return { client, directory, service, session, simulator }
})

/** Each case waits for a process more than it works. */
const together = { concurrent: true, timeout: 600_000 }

layer(Environment.layer, { excludeTestServices: true })("SIGTERM ends the service", it => {
  for (const [what, hanging, isStarted, asked] of [
    ["if the platform does not stop instances", "stop", true, undefined],
    ["while a client deletes a session that the platform does not stop", "stop", true, "delete_session"],
    ["if the platform does not answer a creation", "*", false, "start_session"]
  ] as const) {
    onlyLong(it.scoped)(
      `gracefully, ${what}`,
      () =>
        Effect.gen(function* () {
          const { client, service, session, simulator } = yield* withSession
          const sessionId = session.id
          if (isStarted) yield* client.get("session", id => ({ type: "start_session", id, sessionId }))
          yield* simulator.inject({ operation: hanging, fault: { kind: "hang" } })
          if (asked !== undefined) {
            yield* asking(
              client.get(asked === "delete_session" ? "session_deleted" : "session", id => ({
                type: asked,
                id,
                sessionId
              })),
              simulator.awaitState(({ requests }) => (asked === "delete_session" ? requests.stop : requests.create) > 0)
            )
          }
          assert.deepStrictEqual(yield* terminate(service), peacefully)
        }),
      together
    )
  }

  onlyLong(it.scoped)(
    "gracefully, if clients read nothing, half-close, or never send their body",
    () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        const service = yield* Service.start({ directory, env: longLimit })
        const client = yield* Client.make(service.url)
        yield* Effect.forEach([1, 2, 3, 4], n => Client.persist(client.set("n", `k${n}`, "x".repeat(1_000_000))))
        const many = `GET /api/v1/changes?after=0 HTTP/1.1\r\nhost: x\r\n${authorization}\r\n\r\n`.repeat(20)
        yield* deaf(service.url, many)
        yield* deaf(service.url, many, true)
        yield* deaf(
          service.url,
          `GET /api/v1/changes/stream HTTP/1.1\r\nhost: x\r\n${authorization}\r\nlast-event-id: 0\r\n\r\n`
        )
        yield* deaf(
          service.url,
          `PUT /api/v1/kv/n/k HTTP/1.1\r\nhost: x\r\n${authorization}\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"value":`
        )
        const follower = yield* Effect.acquireRelease(
          Effect.sync(
            () =>
              new WebSocket(`${service.url.replace("http", "ws")}/api/v1/changes/ws?after=0`, {
                headers: { authorization: `Bearer ${Service.key}` }
              })
          ),
          socket => Effect.sync(() => socket.terminate())
        )
        follower.on("error", () => {})
        follower.on("open", () => follower.pause())
        assert.strictEqual(yield* status(`${service.url}/health`), 200)
        assert.deepStrictEqual(yield* terminate(service), peacefully)
      }),
    together
  )

  onlyLong(it.scoped)(
    "gracefully, if the collector of traces does not answer",
    () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        const collector = yield* silentServer
        const service = yield* Service.start({
          directory,
          env: { ...longLimit, OTEL_EXPORTER_OTLP_ENDPOINT: collector }
        })
        yield* Client.persist((yield* Client.make(service.url)).set("n", "k", 1))
        assert.deepStrictEqual(yield* terminate(service), peacefully)
      }),
    together
  )

  it.scoped(
    "at once on a second signal",
    () =>
      Effect.gen(function* () {
        const { client, directory, service, session, simulator } = yield* withSession
        yield* client.get("session", id => ({ type: "start_session", id, sessionId: session.id }))
        yield* simulator.inject({ operation: "stop", fault: { kind: "hang" } })
        service.signal("SIGTERM")
        yield* service.shows(/"Stopping sessions"/)
        // A terminal and what runs in it may both pass on the same interrupt; those count as one.
        const again = yield* Effect.fork(
          Effect.forever(
            Effect.delay(
              Effect.sync(() => service.signal("SIGINT")),
              "50 millis"
            )
          )
        )
        assert.deepStrictEqual(yield* endOf(service), killed)
        assert.match(service.log(), /"level":"WARN","message":"A second signal ends the process at once"/)
        again.unsafeInterruptAsFork(again.id())
        yield* simulator.clear
        yield* Effect.scoped(serve({ DATA_DIR: directory, KV_API_KEY: Service.key }))
      }),
    together
  )

  // Whatever was acknowledged before a fault is there after a restart without it.
  for (const [what, fault, register] of [
    ["in a flush", "hang", it.scoped.runIf(Disk.isPossible)],
    ["as the main thread releases the lock", "hangingLock", onlyLong(it.scoped.runIf(Disk.isPossible))]
  ] as const) {
    register(
      `by force, if the disk hangs ${what}, and keeps acknowledged writes`,
      () =>
        Effect.gen(function* () {
          const directory = yield* temporaryDirectory
          const disk = yield* Disk.make(directory)
          const service = yield* Service.start({ directory, env: { ...shortLimit, ...disk.env } })
          const client = yield* Client.make(service.url)
          yield* Client.persist(client.set("n", "acknowledged", "kept"))
          yield* disk.fail(fault)
          if (fault === "hang") {
            assert.isTrue(Exit.isFailure(yield* Effect.exit(client.set("n", "unknown", "lost or not"))))
          }
          assert.deepStrictEqual(yield* terminate(service), killed)
          assert.match(service.log(), /"level":"ERROR","message":"The service has not ended within 2s and is killed/)
          const again = yield* Client.make((yield* serve({ DATA_DIR: directory, KV_API_KEY: Service.key })).url)
          assert.strictEqual((yield* Client.persist(again.existing("n", "acknowledged"))).value, "kept")
        }),
      together
    )
  }
})
