/** A gateway that does nothing by itself: a test sees what it is sent, and says what it answers. */
import { createServer, type IncomingMessage } from "node:http"
import type { AddressInfo } from "node:net"
import { type WebSocket, WebSocketServer } from "ws"
import {
  Fold,
  makeSessions,
  type Session,
  type Sessions,
  type SessionsOptions,
  type SessionUpdate
} from "../../src/Client/Client.ts"
import { Collected, ManualClock, passUntil, until } from "./Harness.ts"

/** A frame, of which a test knows what it must hold. */
export type Frame = Record<string, unknown> & { readonly type: string; readonly id: string }

/** One connection, as the gateway has it. */
export class Accepted {
  readonly frames: Array<Frame> = []
  isClosed = false

  constructor(
    readonly socket: WebSocket,
    readonly handshake: IncomingMessage
  ) {
    socket.on("message", data => {
      const frame = JSON.parse(String(data))
      if (frame.type !== "ping") this.frames.push(frame)
      else if (this.answersPings) this.send({ type: "pong", id: frame.id, timestamp: 0 })
      else this.pings++
    })
    socket.on("close", () => {
      this.isClosed = true
    })
  }

  pings = 0
  answersPings = true

  send(frame: object): void {
    this.socket.send(JSON.stringify(frame))
  }

  /** Answers the newest request of a type. */
  answer(type: string, answer: object): void {
    const { id } = this.frames.findLast(frame => frame.type === type)!
    this.send({ id, ...answer })
  }

  refuse(type: string, code: string, retryable = false): void {
    this.answer(type, { type: "error", error: { code, message: `no ${type}`, retryable, traceId: "t".repeat(32) } })
  }

  subscribed(headSeq: number, more: { readonly epoch?: string; readonly recovered?: boolean } = {}): void {
    this.answer("subscribe", { type: "subscribed", session, epoch: "e1", headSeq, recovered: true, ...more })
  }

  /** Sends events of these numbers. */
  events(seqs: ReadonlyArray<number>, text = ""): void {
    for (const seq of seqs) {
      this.send({ type: "text_delta", sessionId: "s", seq, timestamp: 0, traceId: "t".repeat(32), text })
    }
  }

  /** Sends the conversation up to an event in parts. */
  conversation(seq: number, epoch = "e1", parts = 2): void {
    const text = JSON.stringify({ ...Fold.empty(epoch), seq })
    const size = Math.ceil(text.length / parts)
    for (let index = 0; index < parts; index++) {
      const part = text.slice(index * size, (index + 1) * size)
      this.send({ type: "conversation", sessionId: "s", epoch, seq, index, last: index === parts - 1, text: part })
    }
  }

  ofType(type: string): ReadonlyArray<Frame> {
    return this.frames.filter(frame => frame.type === type)
  }
}

export const session: Session = {
  id: "s",
  tenant: "acme",
  agentType: "echo",
  title: "",
  state: "active",
  instanceId: null,
  createdAt: 0,
  updatedAt: 0,
  epoch: "e1",
  headSeq: 0
}

/** The answer to `get_session`, without its id. */
export const got = { type: "session", session } as const

/** Why handshakes are refused, if they are; ordinary requests are answered the same. */
export interface Refusal {
  readonly status: number
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string
}

export class ScriptedGateway {
  readonly connections: Array<Accepted> = []
  handshakes = 0
  refusal: Refusal | undefined
  readonly statuses: Array<string> = []
  readonly pauses: Array<number> = []
  readonly clock: ManualClock
  readonly #server = createServer((_, response) => {
    const { body, headers, status } = this.refusal ?? { status: 500, body: '{"error":"no handshake"}' }
    response.writeHead(status, headers).end(body ?? JSON.stringify({ error: `refused with ${status}` }))
  })
  readonly #sockets = new WebSocketServer({ noServer: true })
  readonly #clients: Array<Sessions> = []

  constructor(random?: () => number) {
    this.clock = new ManualClock(random)
    this.#server.on("upgrade", (request, socket, head) => {
      this.handshakes++
      socket.on("error", () => {})
      if (this.refusal !== undefined) {
        socket.end(`HTTP/1.1 ${this.refusal.status} No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n`)
        return
      }
      this.#sockets.handleUpgrade(request, socket, head, webSocket =>
        this.connections.push(new Accepted(webSocket, request))
      )
    })
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  /** The newest connection. */
  get last(): Accepted {
    return this.connections.at(-1)!
  }

  client(options: Partial<SessionsOptions> = {}): Sessions {
    const client = makeSessions({
      baseUrl: this.url,
      token: "token",
      clock: this.clock,
      onStatus: status => {
        this.statuses.push(status.type)
        if (status.type === "disconnected") this.pauses.push(status.retryInMs)
      },
      ...options
    })
    this.#clients.push(client)
    return client
  }

  /** Waits for a request of a type on a connection. */
  async requested(type: string, connection = Math.max(1, this.connections.length)): Promise<Accepted> {
    await until(() => (this.connections[connection - 1]?.ofType(type).length ?? 0) > 0)
    return this.connections[connection - 1]!
  }

  /** Lets time pass until there are so many connections. */
  connected(count: number): Promise<void> {
    return passUntil(this.clock, () => this.connections.length >= count)
  }

  async run(body: (gateway: ScriptedGateway) => Promise<void>): Promise<void> {
    await new Promise<void>(resolve => this.#server.listen(0, "127.0.0.1", resolve))
    try {
      await body(this)
    } finally {
      for (const client of this.#clients) client.close()
      for (const socket of this.#sockets.clients) socket.terminate()
      this.#server.closeAllConnections()
      await new Promise(resolve => this.#server.close(resolve))
    }
  }
}

/** Runs a test with a gateway and a client of it. */
export const withGateway = (body: (gateway: ScriptedGateway, sessions: Sessions) => Promise<void>): Promise<void> =>
  new ScriptedGateway().run(gateway => body(gateway, gateway.client()))

/** The updates of a subscriber. */
export class Received extends Collected<SessionUpdate> {
  get updates(): ReadonlyArray<SessionUpdate> {
    return this.items
  }

  get seqs(): ReadonlyArray<number> {
    return this.updates.flatMap(update => (update.type === "event" ? [update.event.seq] : []))
  }

  /** The numbers of events, and the names of all other updates. */
  get story(): ReadonlyArray<number | string> {
    return this.updates.map(update => (update.type === "event" ? update.event.seq : update.type))
  }
}
