/** Many clients of a gateway in one process, each with its own session. */
import http from "node:http"
import { Effect, type Scope } from "effect"
import { SignJWT } from "jose"
import { WebSocket } from "ws"
import { type Answer, type Event, encode, type RequestFrame, type Session } from "../../../src/Gateway/Protocol.ts"
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

const tokenOf = (tenant: string) =>
  Effect.promise(() =>
    new SignJWT({ tenant, sub: "bench" })
      .setProtectedHeader({ alg: "HS256" })
      .setExpirationTime("2 hours")
      .sign(new TextEncoder().encode(secret))
  )

/** What a client receives. It checks that each event has the `seq` after the last one. */
class Receiver {
  private seq = 0
  private delta = 0
  sessionId = ""

  constructor(
    protected readonly tally: Tally,
    private readonly listener: Listener
  ) {}

  protected fault(text: string): void {
    if (this.tally.faults.length < maxFaults) this.tally.faults.push(text)
  }

  protected onEvent(event: Event): void {
    if (event.seq !== this.seq + 1) this.fault(`${this.sessionId}: ${event.seq} came behind ${this.seq}`)
    this.seq = event.seq
    if (event.type === "text_delta") {
      const [index, sentAt] = readDelta(event.text)
      if (index !== this.delta + 1) this.fault(`${this.sessionId}: delta ${index} came behind ${this.delta}`)
      this.delta = index
      this.tally.deltas++
      this.listener.onDelta(sentAt)
    } else if (event.type === "turn_completed") this.tally.ended++
    else if (event.type === "turn_errored") this.fault(event.message)
  }
}

/** A client of a session. */
interface Client {
  /** Creates a session and follows it. */
  readonly follow: Effect.Effect<void, BenchFailed>
  readonly send: (content: string) => Effect.Effect<void, BenchFailed>
  readonly end: () => void
}

/** A client over WebSocket. */
class SocketClient extends Receiver implements Client {
  private readonly waiting = new Map<string, (answer: Answer) => void>()
  private lastId = 0

  constructor(
    readonly socket: WebSocket,
    tally: Tally,
    listener: Listener
  ) {
    super(tally, listener)
    socket.on("message", (data: Buffer) => this.onFrame(JSON.parse(String(data))))
    socket.on("close", code => {
      this.tally.closed++
      this.fault(`a connection was closed with ${code}`)
    })
  }

  readonly follow = Effect.gen(this, function* () {
    const created = yield* this.ask(id => ({ type: "create_session", id, agentType: "bench", title: "bench" }))
    if (created.type !== "session_created") return yield* problem(`create_session was answered ${created.type}`)
    const sessionId = created.session.id
    this.sessionId = sessionId
    yield* this.ask(id => ({ type: "subscribe", id, sessionId }))
  })

  send(content: string): Effect.Effect<void, BenchFailed> {
    const { sessionId } = this
    return Effect.asVoid(this.ask(id => ({ type: "send_message", id, sessionId, content })))
  }

  end(): void {
    this.socket.removeAllListeners("close").terminate()
  }

  private ask(request: (id: string) => RequestFrame): Effect.Effect<Answer, BenchFailed> {
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

  private onFrame(frame: Answer | Event): void {
    if (!("seq" in frame) || frame.type === "conversation") {
      if (!("id" in frame) || frame.id === undefined) return this.fault(JSON.stringify(frame))
      this.waiting.get(frame.id)?.(frame)
      this.waiting.delete(frame.id)
      return
    }
    this.onEvent(frame)
  }
}

/** A client over HTTP, which reads an event stream after the other. */
class StreamClient extends Receiver implements Client {
  private request: http.ClientRequest | undefined
  private offset = "-1"
  private isOver = false

  constructor(
    private readonly base: string,
    private readonly token: string,
    tally: Tally,
    listener: Listener
  ) {
    super(tally, listener)
  }

  readonly follow = Effect.gen(this, function* () {
    const { session } = yield* this.post("", { agentType: "bench", title: "bench" })
    this.sessionId = session.id
    yield* Effect.async<void, BenchFailed>(resume => this.read(() => resume(Effect.void)))
  })

  send(content: string): Effect.Effect<void, BenchFailed> {
    return Effect.asVoid(this.post(`/${this.sessionId}/messages`, { content }))
  }

  end(): void {
    this.isOver = true
    this.request?.destroy()
  }

  private post(path: string, body: object) {
    return Effect.tryPromise({
      try: async () => {
        const answer = await fetch(`${this.base}${path}`, {
          method: "POST",
          headers: { authorization: `Bearer ${this.token}`, "content-type": "application/json" },
          body: JSON.stringify(body)
        })
        if (!answer.ok) throw new Error(`${answer.status}: ${await answer.text()}`)
        return (await answer.json()) as { readonly session: Session }
      },
      catch: error => problem(String(error))
    })
  }

  /** Reads a stream, and then the next one. */
  private read(onOpen: () => void): void {
    const url = `${this.base}/${this.sessionId}/events?live=sse&offset=${this.offset}`
    this.request = http.get(url, { agent: false, headers: { authorization: `Bearer ${this.token}` } }, response => {
      onOpen()
      let text = ""
      response.setEncoding("utf8")
      response.on("data", (chunk: string) => {
        text += chunk
        for (let end = text.indexOf("\n\n"); end !== -1; end = text.indexOf("\n\n")) {
          this.onBlock(text.slice(0, end))
          text = text.slice(end + 2)
        }
      })
      response.on("close", () => {
        if (this.isOver) return
        if (!response.complete) {
          this.tally.closed++
          return this.fault("a stream was cut")
        }
        this.read(() => {})
      })
    })
    this.request.on("error", error => this.isOver || this.fault(`a client cannot read: ${error.message}`))
  }

  private onBlock(block: string): void {
    const data = block.slice(block.indexOf("\ndata: ") + 7)
    if (block.startsWith("event: data\n")) for (const event of JSON.parse(data)) this.onEvent(event)
    else if (block.startsWith("event: control\n")) this.offset = JSON.parse(data).streamNextOffset
  }
}

/** The number and the time of a delta. If there is none it is `NaN`, which counts as out of order. */
const readDelta = (text: string): readonly [index: number, sentAt: number] => {
  const space = text.indexOf(" ")
  return [Number(text.slice(0, space)), Number(text.slice(space + 1))]
}

const connect = (url: string, token: string) =>
  Effect.async<WebSocket, BenchFailed>(resume => {
    const socket = new WebSocket(url, {
      headers: { authorization: `Bearer ${token}` },
      perMessageDeflate: false,
      skipUTF8Validation: true
    })
    socket.once("open", () => resume(Effect.succeed(socket)))
    socket.on("error", error => resume(problem(`a client cannot connect: ${error.message}`)))
  })

/** How a client is connected. */
export type Transport = "WebSocket" | "event stream"

/** The number of clients, and whether each follows a session. */
export interface Options {
  readonly url: string
  readonly count: number
  readonly withSessions: boolean
  /** How clients are connected; by WebSocket if it is absent. */
  readonly transport?: Transport
  readonly listener?: Listener
}

/** The address of sessions over HTTP, by that of the WebSocket. */
const baseOf = (url: string): string => url.replace(/^ws(.*)\/ws$/, "http$1/api/v1/sessions")

const deaf: Listener = { onDelta: () => {} }

/** Connects clients until the scope closes. */
export const make = ({
  url,
  count,
  withSessions,
  listener = deaf,
  transport = "WebSocket"
}: Options): Effect.Effect<Clients, BenchFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const tally: Tally = { deltas: 0, faults: [], ended: 0, closed: 0 }
    const clients: Array<Client> = []
    yield* Effect.addFinalizer(() =>
      Effect.sync(() => {
        for (const client of clients) client.end()
      })
    )
    const tokens = yield* Effect.forEach(Array.from({ length: Math.ceil(count / perTenant) }).keys(), index =>
      tokenOf(`bench-${index}`)
    )
    const one = (index: number) =>
      Effect.gen(function* () {
        const token = tokens[Math.floor(index / perTenant)]!
        const client =
          transport === "WebSocket"
            ? new SocketClient(yield* connect(url, token), tally, listener)
            : new StreamClient(baseOf(url), token, tally, listener)
        clients.push(client)
        if (withSessions) yield* client.follow
      })
    yield* Effect.forEach(Array.from({ length: count }).keys(), one, { concurrency, discard: true })
    return {
      tally,
      begin: wanted =>
        Effect.forEach(clients.slice(0, wanted), client => client.send("speak"), { concurrency, discard: true })
    }
  })
