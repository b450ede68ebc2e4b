import { connect, type Socket } from "node:net"
import { Effect } from "effect"
import { BenchFailed } from "../BenchFailed.ts"
import { Histogram } from "./Histogram.ts"
import { Responses } from "./Responses.ts"

/** A load of requests. */
export interface Load {
  readonly port: number
  readonly connections: number
  readonly seconds: number
  /** Returns the bytes of the next request. */
  readonly request: () => string
}

/** The results of a load. */
export interface Outcome {
  readonly requests: number
  /** Answers other than 2xx, which also count as requests. */
  readonly failures: number
  readonly seconds: number
  readonly latency: Histogram
}

/** Timeout for answers after the end, in milliseconds; then the load fails. */
const timeout = 10_000

/** One connection with one request at a time. */
class Client {
  readonly socket: Socket
  private sentAt = 0

  constructor(
    port: number,
    private readonly request: () => string,
    private readonly onAnswer: (status: number, sentAt: number) => boolean,
    onLost: (reason: string) => void
  ) {
    const responses = new Responses(status => {
      if (this.onAnswer(status, this.sentAt)) this.send()
    })
    this.socket = connect({
      port,
      host: "127.0.0.1",
      noDelay: true,
      // Reusing one buffer avoids a copy and an event for each read.
      onread: {
        buffer: Buffer.allocUnsafe(64 * 1024),
        callback: (length, buffer) => {
          responses.push(Buffer.from(buffer.buffer, buffer.byteOffset, length))
          return true
        }
      }
    })
    this.socket.on("error", error => onLost(error.message))
    this.socket.on("close", () => onLost("the server closed a connection"))
  }

  send(): void {
    this.sentAt = performance.now()
    this.socket.write(this.request(), "latin1")
  }
}

/**
 * Loads a server. Each connection sends its next request when it has the answer to the last one. Requests count if
 * their answer arrives within the time; connecting does not count.
 *
 * In a closed loop a server that stalls gets fewer requests. The quantiles are what clients that wait for their answers
 * see; they say nothing about requests at a fixed rate.
 */
export const run = ({ connections, port, request, seconds }: Load): Effect.Effect<Outcome, BenchFailed> =>
  Effect.async(resume => {
    const latency = new Histogram()
    const clients: Array<Client> = []
    let connected = 0
    let waiting = 0
    let requests = 0
    let failures = 0
    let startedAt = 0
    let endsAt = Number.POSITIVE_INFINITY
    let timer: NodeJS.Timeout | undefined
    let isOver = false

    const close = (): void => {
      isOver = true
      clearTimeout(timer)
      for (const { socket } of clients) socket.destroy()
    }
    const fail = (reason: string): void => {
      if (isOver) return
      close()
      resume(new BenchFailed({ reason: `the load on port ${port} failed: ${reason}` }))
    }
    const onAnswer = (status: number, sentAt: number): boolean => {
      const now = performance.now()
      if (now < endsAt) {
        requests++
        if (status < 200 || status > 299) failures++
        latency.record(now - sentAt)
        return true
      }
      waiting--
      if (waiting === 0 && !isOver) {
        close()
        resume(Effect.succeed({ requests, failures, seconds: (endsAt - startedAt) / 1000, latency }))
      }
      return false
    }
    const begin = (): void => {
      startedAt = performance.now()
      endsAt = startedAt + seconds * 1000
      waiting = connections
      timer = setTimeout(() => fail("an answer does not come"), seconds * 1000 + timeout)
      for (const client of clients) client.send()
    }
    for (let count = 0; count < connections; count++) {
      const client = new Client(port, request, onAnswer, fail)
      client.socket.once("connect", () => {
        connected++
        if (connected === connections) begin()
      })
      clients.push(client)
    }
    return Effect.sync(close)
  })
