/** Nodes of the service as processes that tests kill, behind one address. */
import { type AddressInfo, connect, createServer, type Socket } from "node:net"
import { Effect, Option, type Scope } from "effect"
import { Changes } from "../../../src/Simulator/Changes.ts"
import * as Service from "../../service/Service.ts"

/** Passes each connection to the next of the nodes that serve, as a load balancer does, and cuts it while there is none. */
class Balancer {
  /** The ports of the nodes that serve. */
  readonly ports = new Set<number>()
  private readonly sockets = new Set<Socket>()
  private next = 0

  private readonly server = createServer(client => {
    const ports = [...this.ports]
    const port = ports[this.next++ % Math.max(1, ports.length)]
    client.on("error", () => {})
    if (port === undefined) return client.destroy()
    const service = connect(port, "127.0.0.1")
    service.on("error", () => {})
    this.sockets.add(client)
    client.pipe(service)
    service.pipe(client)
    client.on("close", () => {
      this.sockets.delete(client)
      service.destroy()
    })
    return service.on("close", () => client.destroySoon())
  })

  listen(): Promise<string> {
    return new Promise(resolve => {
      this.server.listen(0, "127.0.0.1", () => {
        resolve(`http://127.0.0.1:${(this.server.address() as AddressInfo).port}`)
      })
    })
  }

  close(): Promise<void> {
    for (const socket of this.sockets) socket.destroy()
    return new Promise(resolve => void this.server.close(() => resolve()))
  }
}

export interface Nodes {
  /** The address of all nodes. */
  readonly url: string
  readonly count: number
  /** Kills a node at once (`kill -9`), and starts it again with what it has stored. */
  readonly kill: (index: number) => Effect.Effect<void, Service.NotServing>
  /** Repeats an attempt until it has a result. It pauses in between, and while no node serves. */
  readonly persist: <A, E>(attempt: Effect.Effect<Option.Option<A>, E>) => Effect.Effect<A, E>
  /** The newest notes, for a test that fails. */
  readonly notes: ReadonlyArray<string>
  readonly note: (text: string) => void
}

const keptNotes = 500

/** How long before the next attempt: what may be waited for is the end of a lease, which no event announces. */
const pause = "50 millis"

/** Starts a node for each of the options. */
export const start = (options: ReadonlyArray<Service.Options>) =>
  Effect.gen(function* () {
    const balancer = new Balancer()
    const changes = new Changes()
    const url = yield* Effect.acquireRelease(
      Effect.promise(() => balancer.listen()),
      () => Effect.promise(() => balancer.close())
    )
    const context = yield* Effect.context<Effect.Effect.Context<ReturnType<typeof Service.start>> | Scope.Scope>()
    const launch = (one: Service.Options) =>
      Service.start(one).pipe(
        Effect.map(service => ({ ...service, port: Number(new URL(service.url).port) })),
        Effect.tap(({ port }) =>
          Effect.sync(() => {
            balancer.ports.add(port)
            changes.notify()
          })
        ),
        Effect.provide(context)
      )
    const running = yield* Effect.forEach(options, launch, { concurrency: "unbounded" })
    const isUp = changes.until(() => (balancer.ports.size > 0 ? Option.some(undefined) : Option.none()))
    const notes: Array<string> = []
    const note = (text: string) => {
      notes.push(text)
      if (notes.length > keptNotes) notes.shift()
    }
    const nodes: Nodes = {
      url,
      notes,
      note,
      count: options.length,
      kill: index =>
        Effect.gen(function* () {
          const { end, port } = running[index]!
          note(`node ${index} is killed`)
          yield* end("SIGKILL")
          balancer.ports.delete(port)
          running[index] = yield* launch(options[index]!)
          note(`node ${index} serves again`)
        }),
      persist: attempt =>
        Effect.gen(function* () {
          for (;;) {
            yield* isUp
            const result = yield* attempt
            if (Option.isSome(result)) return result.value
            yield* Effect.sleep(pause)
          }
        })
    }
    return nodes
  })
