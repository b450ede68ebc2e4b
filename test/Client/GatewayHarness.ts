/** A gateway with a simulated platform, behind a proxy, which can be killed and started again. */
import { Effect, Logger } from "effect"
import { makeSessions, type Sessions, type SessionsOptions } from "../../src/Client/Client.ts"
import * as SocketFixture from "../Gateway/SocketFixture.ts"
import { Proxy } from "./Harness.ts"

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
}

/** Runs a test with a gateway in dev mode. */
export const withRealGateway = (body: (bench: GatewayBench) => Promise<void>): Promise<void> =>
  Effect.gen(function* () {
    const { start } = yield* SocketFixture.make()
    const context = yield* Effect.context<Effect.Effect.Context<typeof start>>()
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
          await Effect.runPromise(gateway.kill)
          gateway = await Effect.runPromise(Effect.provide(start, context))
        },
        drain: () => Effect.runPromise(gateway.draining.begin)
      })
    )
  }).pipe(Effect.scoped, Effect.provide(Logger.remove(Logger.defaultLogger)), Effect.runPromise)
