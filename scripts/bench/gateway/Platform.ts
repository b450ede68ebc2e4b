/** A minimal agent platform, so that the gateway is what is measured. */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { Effect, Schema, type Scope } from "effect"
import { type WebSocket, WebSocketServer } from "ws"

const Frame = Schema.parseJson(
  Schema.Struct({ type: Schema.String, turnId: Schema.optionalWith(Schema.String, { default: () => "" }) })
)

const decodeFrame = Schema.decodeUnknownSync(Frame)

/** An agent with a single endless turn of deltas. */
interface Agent {
  readonly isInTurn: boolean
  readonly delta: (now: number) => void
  readonly end: () => void
}

/** A delta with its number and the time it was sent, about as long as two words. */
const textOf = (number: number, now: number): string => `${number} ${now.toFixed(3)} `

/** One instance of the platform. */
class Instance implements Agent {
  private events = 0
  private turnId = ""
  /** Deltas sent in the turn. */
  deltas = 0

  constructor(private readonly socket: WebSocket) {
    this.emit('"type":"instance.ready"')
  }

  get isInTurn(): boolean {
    return this.turnId !== ""
  }

  begin(turnId: string): void {
    this.turnId = turnId
    this.deltas = 0
    this.emit(`"type":"turn.started","turnId":"${turnId}"`)
    this.emit(`"type":"message.start","turnId":"${turnId}","messageId":"m"`)
  }

  delta(now: number): void {
    const text = textOf(++this.deltas, now)
    this.emit(`"type":"message.delta","turnId":"${this.turnId}","messageId":"m","delta":"${text}"`)
  }

  end(): void {
    const { turnId } = this
    this.turnId = ""
    this.emit(`"type":"message.complete","turnId":"${turnId}","messageId":"m"`)
    this.emit(`"type":"turn.completed","turnId":"${turnId}"`)
  }

  private emit(members: string): void {
    this.socket.send(`{"id":"e${++this.events}",${members}}`)
  }
}

/** One run by AG-UI. */
class Run implements Agent {
  isInTurn = true
  private deltas = 0

  constructor(private readonly response: ServerResponse) {
    response.writeHead(200, { "content-type": "text/event-stream" })
    this.emit('"type":"RUN_STARTED","threadId":"t","runId":"r"')
    this.emit('"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"')
  }

  delta(now: number): void {
    this.emit(`"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"${textOf(++this.deltas, now)}"`)
  }

  end(): void {
    this.isInTurn = false
    this.emit('"type":"TEXT_MESSAGE_END","messageId":"m"')
    this.emit('"type":"RUN_FINISHED","threadId":"t","runId":"r"')
    this.response.end()
  }

  private emit(members: string): void {
    this.response.write(`data: {${members}}\n\n`)
  }
}

/** The path of the agent by AG-UI. */
const agentPath = "/agent"

/** The platform. */
export interface Platform {
  readonly url: string
  /** The address of the agent by AG-UI. */
  readonly agentUrl: string
  /** Turns in progress. */
  readonly turns: () => number
  /** Deltas sent in all turns so far. */
  readonly deltas: () => number
  /** The largest delay of a delta since the last call, in milliseconds. */
  readonly lateness: () => number
  /** Sends evenly spread deltas in each turn until the scope closes; the rate is per second. */
  readonly speak: (perSecond: number) => Effect.Effect<void, never, Scope.Scope>
  /** Ends all turns. */
  readonly finish: Effect.Effect<void>
}

/** Milliseconds between two checks for due deltas. */
const tick = 2

/** Serves on a free port until the scope closes. */
export const make: Effect.Effect<Platform, never, Scope.Scope> = Effect.acquireRelease(
  Effect.async<Platform & { readonly close: () => void }>(resume => {
    const instances = new Set<Agent>()
    let created = 0
    let speaking: ReadonlyArray<Agent> = []
    let said = 0
    let worst = 0

    const answer = (request: IncomingMessage, response: ServerResponse): void => {
      request.resume()
      if (request.method === "POST" && request.url === agentPath) {
        const run = new Run(response)
        instances.add(run)
        response.on("close", () => instances.delete(run))
        return
      }
      const creates = request.method === "POST"
      const body = creates ? `{"instanceId":"i${++created}"}` : "{}"
      response.writeHead(creates ? 201 : 200, { "content-type": "application/json" }).end(body)
    }
    const server = createServer(answer)
    const sockets = new WebSocketServer({ server, perMessageDeflate: false, maxPayload: 1024 * 1024 })
    sockets.on("connection", socket => {
      const instance = new Instance(socket)
      instances.add(instance)
      socket.on("error", () => socket.terminate())
      socket.on("close", () => instances.delete(instance))
      socket.on("message", data => {
        const { turnId, type } = decodeFrame(String(data))
        if (type === "message") instance.begin(turnId)
      })
    })

    const inTurn = () => [...instances].filter(({ isInTurn }) => isInTurn)

    const speak = (perSecond: number) =>
      Effect.gen(function* () {
        speaking = inTurn()
        const perMilli = (perSecond * speaking.length) / 1000
        const started = performance.now()
        let sent = 0
        const say = Effect.sync(() => {
          const now = performance.now()
          const due = Math.floor((now - started) * perMilli)
          worst = Math.max(worst, now - started - sent / perMilli)
          said += due - sent
          for (; sent < due; sent++) speaking[sent % speaking.length]!.delta(performance.now())
        })
        yield* Effect.forkScoped(Effect.forever(Effect.zipRight(say, Effect.sleep(tick))))
      })

    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address() as AddressInfo
      resume(
        Effect.succeed({
          url: `http://127.0.0.1:${port}`,
          agentUrl: `http://127.0.0.1:${port}${agentPath}`,
          turns: () => inTurn().length,
          deltas: () => said,
          lateness: () => {
            const found = worst
            worst = 0
            return found
          },
          speak,
          finish: Effect.sync(() => {
            for (const instance of inTurn()) instance.end()
          }),
          close: () => {
            for (const socket of sockets.clients) socket.terminate()
            server.close()
          }
        })
      )
    })
  }),
  ({ close }) => Effect.sync(close)
)
