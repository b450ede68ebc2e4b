/** The service in this process, behind a proxy that cuts and holds up connections; and time that tests move. */
import { subscribe, unsubscribe } from "node:diagnostics_channel"
import { createServer as createHttpServer, type RequestListener } from "node:http"
import { type AddressInfo, createServer, connect as dial, type Server, type Socket } from "node:net"
import { Context, Duration, Effect, Exit, Layer, Logger, Scope } from "effect"
import { expect } from "vitest"
import { JsonText } from "../../src/base/Json/JsonText.ts"
import {
  type Client,
  type ClientOptions,
  type Clock,
  type FollowEvent,
  type FollowStatus,
  makeClient
} from "../../src/Client/Client.ts"
import { ChangeLog } from "../../src/Kv/ChangeLog.ts"
import { Store } from "../../src/Kv/Store.ts"
import * as Memory from "../../src/Storage/Memory.ts"
import { keys } from "../Harness.ts"
import { quickEdge } from "../Http/Edge/EdgeTransport.ts"

const quiet = Logger.remove(Logger.defaultLogger)

/** The service over a store in memory that outlives restarts. */
export class Service {
  #store: Context.Context<Store | ChangeLog> | undefined
  #scope: Scope.CloseableScope | undefined
  readonly #storeScope = Effect.runSync(Scope.make())
  port = 0

  async start(): Promise<void> {
    this.#store ??= await Effect.runPromise(Layer.buildWithScope(Layer.fresh(Memory.layer), this.#storeScope))
    this.#scope = await Effect.runPromise(Scope.make())
    const served = quickEdge.serve(Layer.succeedContext(this.#store)).pipe(Scope.extend(this.#scope))
    this.port = (await Effect.runPromise(Effect.provide(served, quiet))).port
  }

  async stop(): Promise<void> {
    if (this.#scope !== undefined) await Effect.runPromise(Scope.close(this.#scope, Exit.void))
    this.#scope = undefined
  }

  async end(): Promise<void> {
    await this.stop()
    await Effect.runPromise(Scope.close(this.#storeScope, Exit.void))
  }

  /** Puts another store in the place of the one there was, while the service is stopped. Returns how it is written to. */
  async restored(): Promise<(namespace: string, key: string) => Promise<unknown>> {
    this.#store = await Effect.runPromise(Layer.buildWithScope(Layer.fresh(Memory.layer), this.#storeScope))
    const store = Context.get(this.#store, Store)
    return (namespace, key) => {
      const set = { op: "set", namespace, key, value: JsonText("1"), expiresAt: null } as const
      return Effect.runPromise(store.commit({ operations: [set], actor: "restore" }))
    }
  }

  /** Removes all change records but the newest. */
  async trim(): Promise<void> {
    // A record has to be older than now.
    for (const before = Date.now(); Date.now() <= before; ) await new Promise(resolve => setTimeout(resolve, 1))
    await Effect.runPromise(Context.get(this.#store!, ChangeLog).trim(Duration.zero))
  }
}

/** The channel of `node:diagnostics_channel` that reports each new connection of this process. */
const connecting = "net.client.socket"

/** Passes connections on, as the network between a client and the service does. */
export class Proxy {
  readonly #server: Server
  readonly #onClient = (message: unknown) => {
    this.#clients.push((message as { readonly socket: Socket }).socket)
  }
  readonly #pairs = new Set<readonly [Socket, Socket]>()
  readonly #following = new Set<Socket>()
  /** Bytes that clients were sent; some of them may be in the buffers of the system. */
  sent = 0
  /** The clients' ends of the connections, as they are in this process. */
  readonly #clients: Array<Socket> = []
  /** The first line of each connection's first request. */
  readonly requests: Array<string> = []
  /** While set, upgrades to WebSocket are refused, as some proxies do. */
  refusesWebSockets = false
  /** While set, new connections are refused. */
  isDown = false

  constructor(private readonly target: () => number) {
    this.#server = createServer(client => {
      client.on("error", () => {})
      if (this.isDown) {
        client.destroy()
        return
      }
      const service = dial(this.target(), "127.0.0.1")
      const pair = [client, service] as const
      this.#pairs.add(pair)
      service.on("error", () => {})
      client.on("data", (bytes: Buffer) => {
        const line = bytes.toString("latin1").split("\r\n", 1)[0]!
        if (/ HTTP\/1\.1$/.test(line)) {
          this.requests.push(line)
          if (/\/changes\/|wait=/.test(line)) this.#following.add(client)
          else this.#following.delete(client)
        }
        if (this.refusesWebSockets && / \S*\/ws[? ]/.test(line)) client.end("HTTP/1.1 502 Bad Gateway\r\n\r\n")
        else if (!service.write(bytes)) client.pause()
      })
      service.on("data", (bytes: Buffer) => {
        this.sent += bytes.length
        if (!client.write(bytes)) service.pause()
      })
      client.on("drain", () => service.resume())
      service.on("drain", () => client.resume())
      client.on("close", () => {
        service.destroy()
        this.#pairs.delete(pair)
        this.#following.delete(client)
      })
      service.on("close", () => client.destroySoon())
    })
  }

  listen(): Promise<number> {
    subscribe(connecting, this.#onClient)
    return new Promise(resolve => {
      this.#server.listen(0, "127.0.0.1", () => resolve(this.port))
    })
  }

  get port(): number {
    const address = this.#server.address()
    return typeof address === "object" && address !== null ? address.port : 0
  }

  get connections(): number {
    return this.#pairs.size
  }

  /** Bytes that clients have taken from the system, whose buffers differ from machine to machine. */
  get taken(): number {
    return this.#clients.reduce((sum, socket) => (socket.remotePort === this.port ? sum + socket.bytesRead : sum), 0)
  }

  /** Connections whose last request was to follow the log. */
  get following(): number {
    return this.#following.size
  }

  /** Cuts all connections; a whole packet may be lost on the way. */
  cut(): void {
    for (const [client, service] of this.#pairs) {
      client.resetAndDestroy()
      service.destroy()
    }
  }

  /** Passes on nothing more over the connections that there are, and does not end them. */
  silence(): void {
    for (const [client, service] of this.#pairs) {
      service
        .removeAllListeners("data")
        .removeAllListeners("close")
        .on("data", () => {})
      client.removeAllListeners("data").on("data", () => {})
    }
  }

  async close(): Promise<void> {
    unsubscribe(connecting, this.#onClient)
    this.cut()
    await new Promise(resolve => this.#server.close(resolve))
  }
}

/** Time that passes only when a test says so. */
export class ManualClock implements Clock {
  #now = 0
  readonly #timers = new Set<{ readonly at: number; readonly callback: () => void }>()

  /** @param random what chance yields; pauses are as long as they may be without it */
  constructor(readonly random: () => number = () => 0.999) {}

  readonly now = (): number => this.#now

  readonly after = (ms: number, callback: () => void): (() => void) => {
    const timer = { at: this.#now + ms, callback }
    this.#timers.add(timer)
    return () => this.#timers.delete(timer)
  }

  /** How many timers are set. */
  get timers(): number {
    return this.#timers.size
  }

  advance(ms: number): void {
    this.#now += ms
    for (const timer of [...this.#timers].sort((a, b) => a.at - b.at)) {
      if (timer.at > this.#now || !this.#timers.delete(timer)) continue
      timer.callback()
    }
  }
}

/** Random numbers from 0 to 1 by a seed (mulberry32). */
export const randomBy = (seed: number) => (): number => {
  seed = (seed + 0x6d2b79f5) | 0
  let mixed = Math.imul(seed ^ (seed >>> 15), seed | 1)
  mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
}

/** Lets the event loop turn so many times. */
export const turns = async (count: number): Promise<void> => {
  for (let turn = 0; turn < count; turn++) await new Promise(resolve => setImmediate(resolve))
}

/** Waits until a figure has stayed the same over many turns of the event loop. */
export const settled = async (figure: () => number): Promise<void> => {
  for (let before = Number.NaN; figure() !== before; await turns(300)) before = figure()
}

/** Waits until a condition holds. */
export const until = async (condition: () => boolean): Promise<void> => {
  while (!condition()) await new Promise(resolve => setTimeout(resolve, 1))
}

/**
 * Lets seconds pass until a condition holds, each of many turns of the event loop, which client and service share: on a
 * slow machine time is slow, so that a healthy service answers within its time.
 */
export const passUntil = async (clock: ManualClock, condition: () => boolean): Promise<void> => {
  while (!condition()) {
    await new Promise(resolve => setTimeout(resolve, 1))
    await turns(300)
    clock.advance(1000)
  }
}

/** A client of the service through the proxy. */
export interface Bench {
  readonly service: Service
  readonly proxy: Proxy
  /** Makes a client that goes through the proxy. */
  readonly connect: (options?: Partial<ClientOptions>) => Client
  /** A client that goes through the proxy. */
  readonly client: Client
  /** A client that goes to the service at once. */
  readonly direct: () => Client
}

/** Runs a test with a server in the place of the service. */
export const serving = async (listener: RequestListener, use: (baseUrl: string) => Promise<void>): Promise<void> => {
  const server = createHttpServer(listener)
  await new Promise<void>(resolve => server.listen(0, "127.0.0.1", resolve))
  try {
    await use(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
  } finally {
    server.closeAllConnections()
    await new Promise(resolve => server.close(resolve))
  }
}

/** The WebSocket of a browser, which takes subprotocols alone. */
export class BrowserWebSocket extends WebSocket {
  constructor(url: string, protocols: unknown) {
    if (!Array.isArray(protocols)) throw new DOMException("Invalid subprotocol", "SyntaxError")
    super(url, protocols)
  }
}

/** Runs a test with the service and the proxy. */
export const withService = async (body: (bench: Bench) => Promise<void>): Promise<void> => {
  const service = new Service()
  const proxy = new Proxy(() => service.port)
  await service.start()
  const port = await proxy.listen()
  const client = (at: number, options: Partial<ClientOptions> = {}) =>
    makeClient({ baseUrl: `http://127.0.0.1:${at}`, token: keys.write, ...options })
  try {
    await body({
      service,
      proxy,
      connect: options => client(port, options),
      client: client(port),
      direct: () => client(service.port)
    })
  } finally {
    await proxy.close()
    await service.end()
  }
}

/** What an iterable yields, collected in the background. */
export class Collected<A> {
  readonly items: Array<A> = []
  /** How it ended. */
  ended: { readonly error?: unknown } | undefined
  readonly done: Promise<void>

  constructor(iterable: AsyncIterable<A>, pace: () => Promise<void> = async () => {}) {
    this.done = (async () => {
      try {
        for await (const item of iterable) {
          this.items.push(item)
          await pace()
        }
        this.ended = {}
      } catch (error) {
        this.ended = { error }
      }
    })()
  }
}

/** The events of a follower. */
export class Gathered extends Collected<FollowEvent> {
  get events(): ReadonlyArray<FollowEvent> {
    return this.items
  }

  /** The `seq` of all changes. */
  get seqs(): ReadonlyArray<number> {
    return this.events.flatMap(event => (event.type === "change" ? [event.change.seq] : []))
  }

  get types(): ReadonlyArray<string> {
    return this.events.map(({ type }) => type)
  }
}

/** What a follower is given: a clock that the test moves, its end, and a listener that gathers what it reports. */
export const observing = () => {
  const statuses: Array<FollowStatus> = []
  const ending = new AbortController()
  const onStatus = (status: FollowStatus) => statuses.push(status)
  return { clock: new ManualClock(), ending, signal: ending.signal, statuses, onStatus }
}

/** The numbers from one to another. */
export const range = (first: number, last: number): ReadonlyArray<number> =>
  Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => first + index)

/** The error of a call that must fail. */
export const failure = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    value => expect.fail(`succeeded with ${JSON.stringify(value)}`),
    error => error
  )

/** Begins a call whose failure is looked at later. */
export const failing = (promise: Promise<unknown>): Promise<unknown> => promise.catch(error => error)
