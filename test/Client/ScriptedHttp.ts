/** A gateway over HTTP that does nothing by itself: a test sees what it is sent, and says what it answers. */
import { makeSessions, type Sessions, type SessionsOptions } from "../../src/Client/Client.ts"
import { ManualClock, turns, until } from "./Harness.ts"
import { session } from "./ScriptedGateway.ts"

/** One event stream. */
export class Stream {
  #controller!: ReadableStreamDefaultController<Uint8Array>
  isCancelled = false
  readonly body = new ReadableStream<Uint8Array>({
    start: controller => {
      this.#controller = controller
    }
  })

  write(text: string): void {
    this.#controller.enqueue(new TextEncoder().encode(text))
  }

  control(next: string, more: object = {}): void {
    this.write(`event: control\ndata: ${JSON.stringify({ streamNextOffset: next, ...more })}\n\n`)
  }

  /** Sends events of these numbers, and the position after them. */
  events(seqs: ReadonlyArray<number>, { epoch = "e1", text = "" } = {}): void {
    const events = seqs.map(seq => ({
      ...{ type: "text_delta", sessionId: "s", seq, timestamp: 0, traceId: "t".repeat(32), text }
    }))
    this.write(`event: data\ndata: ${JSON.stringify(events)}\n\n`)
    this.control(offset(seqs.at(-1)!, epoch))
  }

  end(): void {
    this.#controller.close()
  }

  /** Called when the client ends the request. */
  cancel(reason: unknown): void {
    this.isCancelled = true
    this.#controller.error(reason)
  }

  cut(): void {
    this.#controller.error(new TypeError("terminated"))
  }
}

/** The offset after an event. */
export const offset = (seq: number, epoch = "e1"): string => `${String(seq).padStart(16, "0")}_${epoch}`

/** One request, as the gateway has it. */
export class Asked {
  isAborted = false
  readonly url: URL
  readonly headers: Headers

  constructor(
    url: URL,
    private readonly init: RequestInit,
    private readonly settle: (response: Response | Promise<never>) => void
  ) {
    this.url = url
    this.headers = new Headers(init.headers)
    init.signal?.addEventListener("abort", () => {
      this.isAborted = true
      settle(Promise.reject(init.signal!.reason))
    })
  }

  /** The method and the path below the gateway. */
  get line(): string {
    return `${this.init.method} ${this.url.pathname.replace("/api/v1/sessions", "")}${this.url.search}`
  }

  get body(): unknown {
    return typeof this.init.body === "string" ? JSON.parse(this.init.body) : this.init.body
  }

  answer(status: number, body?: object, headers: Readonly<Record<string, string>> = {}): void {
    const text = body === undefined ? null : JSON.stringify(body)
    const given = Object.entries({ "x-request-id": "r-1", ...headers }).filter(([, value]) => value !== "")
    this.settle(new Response(text, { status, headers: given }))
  }

  refuse(status: number, headers: Readonly<Record<string, string>> = {}): void {
    this.answer(status, { error: `refused with ${status}` }, headers)
  }

  lose(): void {
    this.settle(Promise.reject(new TypeError("fetch failed")))
  }

  stream(): Stream {
    const stream = new Stream()
    const { signal } = this.init
    signal?.addEventListener("abort", () => stream.cancel(signal.reason))
    this.settle(new Response(stream.body, { headers: { "content-type": "text/event-stream" } }))
    return stream
  }
}

export class ScriptedHttp {
  readonly asked: Array<Asked> = []
  readonly statuses: Array<string> = []
  readonly pauses: Array<number> = []
  readonly clock = new ManualClock()
  readonly #clients: Array<Sessions> = []

  readonly fetch: typeof globalThis.fetch = (input, init = {}) =>
    new Promise((resolve, reject) => {
      init.signal?.throwIfAborted()
      const settle = (response: Response | Promise<never>) => {
        if (response instanceof Response) resolve(response)
        else response.catch(reject)
      }
      this.asked.push(new Asked(new URL(String(input)), init, settle))
    })

  client(options: Partial<SessionsOptions> = {}): Sessions {
    const client = makeSessions({
      baseUrl: "http://gateway.example.com",
      token: "token",
      transport: "http",
      clock: this.clock,
      fetch: this.fetch,
      onStatus: status => {
        this.statuses.push(status.type)
        if (status.type === "disconnected") this.pauses.push(status.retryInMs)
      },
      ...options
    })
    this.#clients.push(client)
    return client
  }

  /** Waits for the request with a number, from 1. */
  async request(number: number): Promise<Asked> {
    await until(() => this.asked.length >= number)
    return this.asked[number - 1]!
  }

  /** Lets the pause pass that follows a failure with a number, from 1, and waits for the next request. */
  async retried(failure: number, request: number): Promise<Asked> {
    await until(() => this.pauses.length >= failure)
    this.clock.advance(this.pauses[failure - 1]!)
    return this.request(request)
  }

  /** Answers the question for the session of a subscription. */
  async describe(number: number, headSeq: number, epoch = "e1"): Promise<void> {
    ;(await this.request(number)).answer(200, { session: { ...session, headSeq, epoch } })
  }

  async run(body: (gateway: ScriptedHttp) => Promise<void>): Promise<void> {
    try {
      await body(this)
    } finally {
      for (const client of this.#clients) client.close()
    }
    // All that has started ends with the client.
    await until(() => this.clock.timers === 0)
    await turns(10)
  }
}

/** Runs a test with a gateway. */
export const withHttp = (body: (gateway: ScriptedHttp, sessions: Sessions) => Promise<void>): Promise<void> =>
  new ScriptedHttp().run(gateway => body(gateway, gateway.client()))
