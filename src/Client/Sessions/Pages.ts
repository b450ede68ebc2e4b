/** Pages of older events, next to the subscriptions of the same connection. */
import { AnswerLost, type RequestRefused, ResponseTooLarge } from "../Errors.ts"
import type { EventPage, SessionEvent } from "../SessionModel.ts"
import { abortable, type Clock, Lifetime } from "../Time.ts"
import type { Link } from "./Link.ts"
import type { AnswerOf } from "./Requests.ts"

export interface PageRequest {
  readonly sessionId: string
  /** Events with a smaller `seq`. */
  readonly beforeSeq: number
  readonly limit: number
  readonly epoch: string | undefined
}

/** One page that is being received. */
class Page {
  readonly events: Array<SessionEvent> = []
  readonly done: Promise<EventPage>
  #resolve!: (page: EventPage) => void
  fail!: (error: unknown) => void
  #characters = 0
  /** The `seq` of the next event; the first one is unknown if older events of the page are no longer kept. */
  #next: number | undefined
  readonly #last: number

  constructor(
    readonly request: PageRequest,
    private readonly answer: AnswerOf<"subscribed">,
    private readonly maxCharacters: number
  ) {
    this.#last = Math.min(request.beforeSeq - 1, answer.headSeq)
    if (answer.recovered) this.#next = Math.max(0, this.#last - request.limit) + 1
    this.done = new Promise((resolve, reject) => {
      this.#resolve = resolve
      this.fail = reject
    })
  }

  /** Adds the next event. A subscription may bring the same ones, and others. */
  onEvent(event: SessionEvent, characters: number): void {
    const { seq } = event
    const isNext = this.#next === undefined ? seq > this.#last - this.request.limit : seq === this.#next
    if (!isNext || seq > this.#last || event.sessionId !== this.request.sessionId) return
    this.#next = seq + 1
    this.#characters += characters
    if (this.#characters > this.maxCharacters) return this.fail(new ResponseTooLarge(this.maxCharacters))
    this.events.push(event)
  }

  end(): void {
    const { epoch, recovered } = this.answer
    this.#resolve({ epoch, events: this.events, hasOlder: recovered && (this.events[0]?.seq ?? 1) > 1 })
  }
}

/** The pages that are being received. */
export class Pages {
  /** By the id of the request. */
  readonly #open = new Map<string, Page>()
  #receivedAt = 0

  constructor(
    private readonly link: () => Link,
    private readonly clock: Clock,
    private readonly timeoutMs: number
  ) {}

  /** Reads a page, again if the connection is lost before its end. */
  async read(request: PageRequest, signal: AbortSignal | undefined): Promise<EventPage> {
    const link = this.link()
    const release = link.hold()
    const lifetime = new Lifetime(this.clock, signal)
    lifetime.limit(this.timeoutMs, `Nothing was received for ${this.timeoutMs} ms`, () => this.#receivedAt)
    try {
      for (;;) {
        const page = await this.#ask(link, request, lifetime.signal).catch(error => {
          if (!(error instanceof AnswerLost)) throw error
        })
        if (page !== undefined) return page
      }
    } finally {
      lifetime.end()
      release()
    }
  }

  async #ask(link: Link, request: PageRequest, signal: AbortSignal): Promise<EventPage> {
    let id = ""
    let page: Page | undefined
    const { epoch, ...asked } = request
    const frame = { type: "subscribe", ...asked, ...(epoch !== undefined && { epoch }) } as const
    const onAnswer = (answer: { readonly type: string }): void => {
      if (answer.type !== "subscribed") return
      const subscribed = answer as AnswerOf<"subscribed">
      id = subscribed.id
      page = new Page(request, subscribed, link.maxResponseBytes)
      page.done.catch(() => {})
      this.#open.set(id, page)
    }
    await link.ask(frame, { onLoss: "repeat", onAnswer, signal })
    try {
      return await abortable(page!.done, signal)
    } finally {
      this.#open.delete(id)
    }
  }

  onEvent(event: SessionEvent, bytes: number): void {
    if (this.#open.size === 0) return
    this.#receivedAt = this.clock.now()
    for (const page of this.#open.values()) page.onEvent(event, bytes / 2)
  }

  onEnd(id: string, error?: RequestRefused): void {
    const page = this.#open.get(id)
    if (error === undefined) page?.end()
    else page?.fail(error)
  }

  onDisconnected(): void {
    this.onEnded(new AnswerLost("The connection was lost"))
  }

  onEnded(error: unknown): void {
    for (const page of this.#open.values()) page.fail(error)
  }
}
