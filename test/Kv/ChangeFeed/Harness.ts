/** A feed over a store in memory whose log is observed and made to fail, and a small server for it. */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import type { Duplex } from "node:stream"
import { it } from "@effect/vitest"
import { Context, Duration, Effect, Exit, Fiber, Layer, Runtime, type Scope, Stream } from "effect"
import { type RawData, WebSocket } from "ws"
import * as Direct from "../../../src/base/Direct.ts"
import { JsonText } from "../../../src/base/Json/JsonText.ts"
import * as DrainingSignal from "../../../src/Http/DrainingSignal.ts"
import * as Reply from "../../../src/Http/Reply.ts"
import { takenBy } from "../../../src/Http/Server/UnsentBudget.ts"
import { closed, problemOf, upgrading } from "../../../src/Http/WebSocket/Handshake.ts"
import { upgradeFailed } from "../../../src/Http/WebSocket.ts"
import { encode } from "../../../src/Kv/Change.ts"
import * as ChangeFeed from "../../../src/Kv/ChangeFeed.ts"
import { alwaysDue, ChangeLog, type ChangeQuery, HistoryTrimmed } from "../../../src/Kv/ChangeLog.ts"
import { Store, StoreUnavailable } from "../../../src/Kv/Store.ts"
import { breathe, until } from "../../../src/Simulator/Testing/Time.ts"
import * as Memory from "../../../src/Storage/Memory.ts"
import type { Steps } from "../../suites/Steps.ts"

/** A log without changes, of which a test replaces what it is about. */
export const quietLog: Context.Tag.Service<ChangeLog> = {
  read: () => Effect.never,
  history: Effect.succeed(0),
  lastSeq: Effect.succeed(0),
  awaitPast: () => Effect.never,
  trim: () => Effect.succeed(0),
  expire: Effect.succeed(0),
  due: alwaysDue
}

/** A change of the tenant `a`. */
export const change = (seq: number) =>
  encode({
    ...{ seq, op: "delete", namespace: "tenant:a/x", key: "k", value: null },
    ...{ version: 1, actor: "test", timestamp: 0 }
  })

/** What a test observes of the log under a feed, and the failures that it injects. */
export interface ProbeShape {
  /** The number of queries so far. */
  reads: number
  /** While set, every read fails. */
  isUnavailable: boolean
  /** Reads at or before this are refused as trimmed. */
  trimmedSeq: number
  /** The record with this `seq` cannot be read: pages end before it, and a page that would begin with it fails. */
  unreadableSeq: number
  /** Replaces the log by an empty one. */
  readonly restore: Effect.Effect<void>
}

export class Probe extends Context.Tag("test/Probe")<Probe, ProbeShape>() {}

const log: Layer.Layer<Probe | ChangeLog | Store> = Layer.scopedContext(
  Effect.gen(function* () {
    const scope = yield* Effect.scope
    const build = Layer.buildWithScope(Memory.layer, scope)
    let current = yield* build
    let restores = 0
    const probe: ProbeShape = {
      reads: 0,
      isUnavailable: false,
      trimmedSeq: 0,
      unreadableSeq: 0,
      restore: Effect.map(
        Effect.map(Layer.buildWithScope(Layer.fresh(Memory.layer), scope), made => made),
        made => {
          current = made
          restores++
        }
      )
    }
    const inner = () => Context.get(current, ChangeLog)
    return Context.make(Probe, probe).pipe(
      Context.add(ChangeLog, {
        read: (query: ChangeQuery) =>
          Effect.suspend(() => {
            probe.reads++
            if (probe.isUnavailable) return new StoreUnavailable({ reason: "unavailable" })
            if (query.after < probe.trimmedSeq) {
              const { trimmedSeq } = probe
              return Effect.flatMap(inner().read(query), ({ epoch }) => new HistoryTrimmed({ trimmedSeq, epoch }))
            }
            return Effect.flatMap(inner().read(query), page => {
              const index = page.changes.findIndex(({ seq }) => seq === probe.unreadableSeq)
              if (index === -1) return Effect.succeed(page)
              if (index === 0) return new StoreUnavailable({ reason: "damaged", isUnreadable: true })
              const changes = page.changes.slice(0, index)
              return Effect.succeed({ ...page, changes, lastSeq: changes.at(-1)!.seq, isComplete: true })
            })
          }),
        history: Effect.suspend(() =>
          probe.isUnavailable ? new StoreUnavailable({ reason: "unavailable" }) : Effect.succeed(restores)
        ),
        lastSeq: Effect.suspend(() => inner().lastSeq),
        awaitPast: seq => Direct.suspend(() => inner().awaitPast(seq)),
        trim: age => Effect.suspend(() => inner().trim(age)),
        expire: Effect.suspend(() => inner().expire),
        due: Effect.suspend(() => inner().due)
      }),
      Context.add(Store, {
        ...Context.get(current, Store),
        commit: write => Effect.suspend(() => Context.get(current, Store).commit(write))
      })
    )
  })
)

/** A feed and the services under it, new for each test. */
export const layer = (limits?: Partial<ChangeFeed.FollowLimitsShape>) =>
  ChangeFeed.layer.pipe(
    Layer.provide(Layer.succeed(ChangeFeed.FollowLimits, { followers: 10_000, unsentBytes: 1024 * 1024, ...limits })),
    Layer.provideMerge(Layer.merge(Layer.fresh(log), DrainingSignal.layer))
  )

/** Registers a test with a feed of its own. */
export const check = (
  title: string,
  body: () => Steps<Layer.Layer.Success<ReturnType<typeof layer>> | Scope.Scope>,
  limits?: Partial<ChangeFeed.FollowLimitsShape>
): void => it.scoped(title, () => Effect.provide(Effect.gen(body), layer(limits)))

/** Sets entries of a tenant in one write. Returns the last `seq`. */
export const put = (tenant: string, ...values: ReadonlyArray<unknown>) =>
  Effect.gen(function* () {
    const store = yield* Store
    const operations = values.map((value, index) => ({
      op: "set" as const,
      namespace: `tenant:${tenant}/a`,
      key: `k${index}`,
      value: JsonText(JSON.stringify(value)),
      expiresAt: null
    }))
    return (yield* Effect.orDie(store.commit({ operations, actor: "test" }))).lastSeq
  })

export const query = (after = 0, tenant = "", limit = 100, epoch?: string): ChangeFeed.FollowQuery => ({
  after,
  tenant,
  limit,
  epoch
})

/** The epoch of the log. */
export const epochNow = Effect.flatMap(ChangeLog, log =>
  Effect.map(log.read({ after: 0, tenant: "", limit: 1 }), page => page.epoch)
)

/** The content of a message or an answer. */
export interface Body {
  readonly type?: string
  readonly changes: ReadonlyArray<{ readonly seq: number; readonly tenantId: string; readonly value: unknown }>
  readonly lastSeq: number
  readonly epoch: string
}

export const seqsOf = (body: Pick<Body, "changes">): ReadonlyArray<number> => body.changes.map(({ seq }) => seq)

export { until }

/** Waits until the feed has this many followers. */
export const untilFollowers = (count: number) =>
  Effect.gen(function* () {
    const feed = yield* ChangeFeed.ChangeFeed
    yield* until(() => Effect.runSync(feed.followers) === count)
  })

/** Waits until the operating system accepts no more bytes for a client that does not read. */
export const untilFull = (socket: Duplex) =>
  Effect.repeat(
    Effect.suspend(() => {
      const before = takenBy(socket)
      return Effect.as(Effect.repeatN(breathe, 29), () => takenBy(socket) === before)
    }),
    { until: isAtRest => isAtRest() }
  )

export interface Served {
  readonly port: number
  /** The server's ends of all connections ever made. */
  readonly sockets: ReadonlyArray<Duplex>
  /** Why upgrades were refused. */
  readonly refusals: ReadonlyArray<string>
  /** How many followers' connections have ended, according to the transport. */
  readonly ended: () => number
}

const queryOf = (request: IncomingMessage): ChangeFeed.FollowQuery & { readonly wait: number } => {
  const params = new URL(request.url ?? "/", "http://localhost").searchParams
  const [after, epoch] = String(request.headers["last-event-id"] ?? "").split("@")
  return {
    after: Number(after || (params.get("after") ?? 0)),
    epoch: epoch ?? params.get("epoch") ?? undefined,
    tenant: params.get("tenant") ?? "",
    namespace: params.get("namespace") ?? undefined,
    prefix: params.get("prefix") ?? undefined,
    limit: Number(params.get("limit") ?? 100),
    wait: Number(params.get("wait") ?? 0)
  }
}

const send = (response: ServerResponse, bytes: Uint8Array): Effect.Effect<void> =>
  Effect.async(resume => {
    if (response.write(bytes)) resume(Effect.void)
    else response.once("drain", () => resume(Effect.void))
  })

const answer = (request: IncomingMessage, response: ServerResponse) =>
  Effect.gen(function* () {
    const feed = yield* ChangeFeed.ChangeFeed
    const { wait, ...where } = queryOf(request)
    if (request.url?.startsWith("/stream")) {
      const events = yield* feed.events(where)
      response.writeHead(200, { "content-type": "text/event-stream" })
      yield* Stream.runForEach(events, bytes => send(response, bytes))
      response.end()
    } else {
      const page = yield* feed.poll(where, Duration.seconds(wait))
      response.end(`{"changes":${page.changes},"lastSeq":${page.lastSeq},"epoch":"${page.epoch}"}`)
    }
  }).pipe(
    Effect.catchAll(error =>
      Effect.sync(() => {
        response.writeHead(error._tag === "HistoryTrimmed" || error._tag === "LogReplaced" ? 410 : 503)
        response.end()
      })
    )
  )

/** Serves the feed at `/stream`, `/ws` and, by polls, everywhere else. */
export const serve: Effect.Effect<Served, never, ChangeFeed.ChangeFeed | Scope.Scope> = Effect.gen(function* () {
  const runtime = yield* Effect.runtime<ChangeFeed.ChangeFeed>()
  const fork = Runtime.runFork(runtime)
  const sockets: Array<Duplex> = []
  const refusals: Array<string> = []
  let ended = 0
  const server = createServer((request, response) => {
    const fiber = fork(answer(request, response))
    response.on("close", () => fork(Fiber.interrupt(fiber)))
  })
  server.on("connection", socket => sockets.push(socket))
  server.on("upgrade", (request, socket, head) => {
    const { wait: _, ...where } = queryOf(request)
    socket.on("error", () => {})
    fork(
      Effect.gen(function* () {
        const feed = yield* ChangeFeed.ChangeFeed
        const handshake = { request, socket, head }
        const problem = problemOf(handshake)
        if (problem !== undefined) return yield* upgradeFailed(problem)
        yield* upgrading(handshake)(Reply.webSocket(yield* feed.webSocket(where)))
        yield* closed(handshake)
        ended++
      }).pipe(
        Effect.catchAll(failure => {
          refusals.push(failure._tag)
          const error = "error" in failure ? failure.error.replace("WebSocket upgrade failed: ", "") : failure.message
          const body = JSON.stringify({ error })
          socket.end(`HTTP/1.1 500 Internal Server Error\r\ncontent-length: ${body.length}\r\n\r\n${body}`)
          return Effect.void
        })
      )
    )
  })
  yield* Effect.acquireRelease(
    Effect.async<void>(resume => {
      server.listen(0, "127.0.0.1", () => resume(Effect.void))
    }),
    () =>
      Effect.async<void>(resume => {
        server.close(() => resume(Effect.void))
        server.closeAllConnections()
        for (const socket of sockets) socket.destroy()
      })
  )
  return { port: (server.address() as AddressInfo).port, sockets, refusals, ended: () => ended }
})

/** A WebSocket client that keeps all messages. */
export class Client {
  readonly messages: Array<Body> = []
  closed: { readonly code: number; readonly reason: string } | undefined
  failure: Error | undefined

  constructor(readonly socket: WebSocket) {
    socket.on("message", (data: RawData) => this.messages.push(JSON.parse(String(data)) as Body))
    socket.on("error", error => {
      this.failure = error
    })
    socket.on("close", (code, reason) => {
      this.closed = { code, reason: String(reason) }
    })
  }

  /** Waits for the message with this index. */
  message(index: number): Effect.Effect<Body> {
    return Effect.map(
      until(() => this.messages.length > index),
      () => this.messages[index]!
    )
  }

  /** The close code, once the connection is closed. */
  get code(): Effect.Effect<number> {
    return Effect.map(
      until(() => this.closed !== undefined),
      () => this.closed!.code
    )
  }

  get changes(): ReadonlyArray<number> {
    return this.messages.flatMap(message => (message.type === "changes" ? seqsOf(message) : []))
  }
}

/** Opens a WebSocket to the feed. It is closed with the scope. */
export const connect = (served: Served, search: string): Effect.Effect<Client, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.async<Client>(resume => {
      const socket = new WebSocket(`ws://127.0.0.1:${served.port}/ws?${search}`)
      const client = new Client(socket)
      socket.on("open", () => resume(Exit.succeed(client)))
      socket.on("error", () => resume(Exit.succeed(client)))
    }),
    client => Effect.sync(() => client.socket.terminate())
  )
