/** A gateway with a simulated platform, behind a proxy, which can be killed and started again. */
import { Clock, Effect, Logger, Runtime, TestClock, TestContext } from "effect"
import { makeSessions, type Sessions, type SessionsOptions } from "../../src/Client/Client.ts"
import * as SocketFixture from "../Gateway/Socket/Fixture.ts"
import { Proxy, turns } from "./Harness.ts"

export interface GatewayBench {
  readonly proxy: Proxy
  /** Makes a client that goes through the proxy. */
  readonly connect: (options?: Partial<SessionsOptions>) => Sessions
  /** Makes a client that goes to the gateway at once. */
  readonly direct: () => Sessions
  /** Kills the gateway and starts another one with what it has stored. */
  readonly restart: () => Promise<void>
  /** Begins the end of the gateway, as by SIGTERM. */
  readonly drain: () => Promise<void>
  /** The time of the gateway, in epoch milliseconds. */
  readonly now: () => Promise<number>
}

type Body = (bench: GatewayBench) => Promise<void>

const withGateway = (body: Body, options?: SocketFixture.Options) =>
  Effect.gen(function* () {
    const { start } = yield* SocketFixture.make(options)
    const runtime = yield* Effect.runtime<Effect.Effect.Context<typeof start>>()
    let gateway = yield* start
    const proxy = new Proxy(() => gateway.port)
    yield* Effect.acquireRelease(
      Effect.promise(() => proxy.listen()),
      () => Effect.promise(() => proxy.close())
    )
    const clients: Array<Sessions> = []
    const client = (port: number, options: Partial<SessionsOptions> = {}) => {
      const sessions = makeSessions({ baseUrl: `http://127.0.0.1:${port}`, ...options })
      clients.push(sessions)
      return sessions
    }
    yield* Effect.addFinalizer(() =>
      Effect.sync(() => {
        for (const sessions of clients) sessions.close()
      })
    )
    yield* Effect.promise(() =>
      body({
        proxy,
        connect: options => client(proxy.port, options),
        direct: () => client(gateway.port),
        restart: async () => {
          await Runtime.runPromise(runtime)(gateway.kill)
          gateway = await Runtime.runPromise(runtime)(start)
        },
        drain: () => Runtime.runPromise(runtime)(gateway.draining.begin),
        now: () => Runtime.runPromise(runtime)(Clock.currentTimeMillis)
      })
    )
  }).pipe(Effect.scoped, Effect.provide(Logger.remove(Logger.defaultLogger)))

/** Runs a test with a gateway in dev mode. */
export const withRealGateway = (body: Body): Promise<void> => Effect.runPromise(withGateway(body))

/** Lets the time of the gateway and the platform pass by turns of the event loop. */
const passing = Effect.forever(
  Effect.zipRight(
    TestClock.adjust("20 millis"),
    Effect.promise(() => turns(5))
  )
)

/** The same where no pause of the gateway takes real time, and a slow machine has slow clocks. */
export const withGatewayInTurns = (body: Body, options?: SocketFixture.Options): Promise<void> =>
  withGateway(body, options).pipe(Effect.raceFirst(passing), Effect.provide(TestContext.TestContext), Effect.runPromise)
