/** Many clients of a gateway in one process, each with its own session. */
import { Effect, type Scope } from "effect"
import { SignJWT } from "jose"
import { WebSocket } from "ws"
import { type Answer, type Event, encode, type RequestFrame } from "../../../src/Gateway/Protocol.ts"
import { BenchFailed } from "../BenchFailed.ts"

/** The secret that the gateway verifies tokens with. */
export const secret = "a secret for the benchmark, 32 bytes and more"

/** Concurrent handshakes. */
const concurrency = 32

/** Maximum number of sessions of one tenant. */
const perTenant = 5000

/** Called for what clients receive. */
export interface Listener {
  /** A delta arrived; `sentAt` is by `performance.now`. */
  readonly onDelta: (sentAt: number) => void
}

/** The faults so far. */
export interface Tally {
  deltas: number
  /** Events that were lost, repeated or out of order, in words; at most {@link maxFaults}. */
  readonly faults: Array<string>
  ended: number
  closed: number
}

const maxFaults = 10

/** Connected clients. */
export interface Clients {
  readonly tally: Tally
  /** Sends a message from each of the first clients. */
  readonly begin: (count: number) => Effect.Effect<void, BenchFailed>
}

const problem = (reason: string) => new BenchFailed({ reason })

/** The tenant of the first clients. */
export const firstTenant = "bench-0"

/** The token of a tenant. */
export const tokenOf = (tenant: string) =>
  Effect.promise(() =>
    new SignJWT({ tenant, sub: "bench" })
      .setProtectedHeader({ alg: "HS256" })
      .setExpirationTime("2 hours")
      .sign(new TextEncoder().encode(secret))
  )

/** One client. It checks that each event has the `seq` after the last one. */
class Client {
  private readonly waiting = new Map<string, (answer: Answer) => void>()
  private lastId = 0
  private seq = 0
  private delta = 0
  sessionId = ""

  constructor(
    readonly socket: WebSocket,
    private readonly tally: Tally,
    private readonly listener: Listener
  ) {
    socket.on("message", (data: Buffer) => this.onFrame(JSON.parse(String(data))))
    socket.on("close", code => {
      this.tally.closed++
      this.fault(`a connection was closed with ${code}`)
    })
  }

  ask(request: (id: string) => RequestFrame): Effect.Effect<Answer, BenchFailed> {
    return Effect.async(resume => {
      const id = String(++this.lastId)
      this.waiting.set(id, answer =>
        resume(
          answer.type === "error" ? problem(`${answer.error.code}: ${answer.error.message}`) : Effect.succeed(answer)
        )
      )
      this.socket.send(encode(request(id)))
    })
  }

  private fault(text: string): void {
    if (this.tally.faults.length < maxFaults) this.tally.faults.push(text)
  }

  private onFrame(frame: Answer | Event): void {
    if (!("seq" in frame)) {
      if (frame.id === undefined) return this.fault(JSON.stringify(frame))
      this.waiting.get(frame.id)?.(frame)
      this.waiting.delete(frame.id)
      return
    }
    if (frame.seq !== this.seq + 1) this.fault(`${this.sessionId}: ${frame.seq} came behind ${this.seq}`)
    this.seq = frame.seq
    if (frame.type === "text_delta") {
      const [index, sentAt] = readDelta(frame.text)
      if (index !== this.delta + 1) this.fault(`${this.sessionId}: delta ${index} came behind ${this.delta}`)
      this.delta = index
      this.tally.deltas++
      this.listener.onDelta(sentAt)
    } else if (frame.type === "turn_completed") this.tally.ended++
    else if (frame.type === "turn_errored") this.fault(frame.message)
  }
}

/** The number and the time of a delta. If there is none it is `NaN`, which counts as out of order. */
const readDelta = (text: string): readonly [index: number, sentAt: number] => {
  const space = text.indexOf(" ")
  return [Number(text.slice(0, space)), Number(text.slice(space + 1))]
}

/** Opens a connection. */
export const connect = (url: string, token: string) =>
  Effect.async<WebSocket, BenchFailed>(resume => {
    const socket = new WebSocket(url, {
      headers: { authorization: `Bearer ${token}` },
      perMessageDeflate: false,
      skipUTF8Validation: true
    })
    socket.once("open", () => resume(Effect.succeed(socket)))
    socket.on("error", error => resume(problem(`a client cannot connect: ${error.message}`)))
  })

/** The number of clients, and whether each follows a session. */
export interface Options {
  readonly url: string
  readonly count: number
  readonly withSessions: boolean
  readonly listener?: Listener
}

const deaf: Listener = { onDelta: () => {} }

/** Connects clients until the scope closes. */
export const make = ({
  url,
  count,
  withSessions,
  listener = deaf
}: Options): Effect.Effect<Clients, BenchFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const tally: Tally = { deltas: 0, faults: [], ended: 0, closed: 0 }
    const clients: Array<Client> = []
    yield* Effect.addFinalizer(() =>
      Effect.sync(() => {
        for (const { socket } of clients) socket.removeAllListeners("close").terminate()
      })
    )
    const tokens = yield* Effect.forEach(Array.from({ length: Math.ceil(count / perTenant) }).keys(), index =>
      tokenOf(`bench-${index}`)
    )
    const one = (index: number) =>
      Effect.gen(function* () {
        const socket = yield* connect(url, tokens[Math.floor(index / perTenant)]!)
        const client = new Client(socket, tally, listener)
        clients.push(client)
        if (!withSessions) return
        const created = yield* client.ask(id => ({ type: "create_session", id, agentType: "bench", title: "bench" }))
        if (created.type !== "session_created") return yield* problem(`create_session was answered ${created.type}`)
        const sessionId = created.session.id
        client.sessionId = sessionId
        yield* client.ask(id => ({ type: "subscribe", id, sessionId }))
      })
    yield* Effect.forEach(Array.from({ length: count }).keys(), one, { concurrency, discard: true })
    return {
      tally,
      begin: wanted =>
        Effect.forEach(
          clients.slice(0, wanted),
          client => client.ask(id => ({ type: "send_message", id, sessionId: client.sessionId, content: "speak" })),
          { concurrency, discard: true }
        )
    }
  })
