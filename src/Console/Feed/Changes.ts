/** The latest changes of the store, live. */
import { signal } from "@preact/signals"
import type { Change } from "../../Client/Client.ts"
import { followTexts } from "../Service/Connection.ts"
import { isAbort, messageOf } from "../Service/Failure.ts"
import { readEnd } from "../Service/LogEnd.ts"
import { FrameWork } from "../Service/Page.ts"
import { retryUntilDone, untilNextTry } from "../Service/Pause.ts"

/** A change with only the start of its value. */
export interface SeenChange extends Omit<Change, "value"> {
  readonly preview: string
}

/** The maximum number of changes. The oldest ones are removed first. */
export const maxChanges = 5000

/** Milliseconds after which a connected feed without changes counts as empty. */
const emptyMs = 500
const earlier = 200

const previewLength = 200

/** The start of a text. A slice alone would keep the whole text in memory. */
const startOf = (text: string): string => Array.from(text.slice(0, previewLength)).join("")

const seen = ({ value, ...change }: Change): SeenChange => ({
  ...change,
  preview: change.op === "delete" ? "" : startOf(String(value))
})

export class Changes {
  /** Oldest first. */
  #all: Array<SeenChange> = []
  /** The changes since the last frame of the page. */
  #arrived: Array<SeenChange> = []
  readonly shown = signal<ReadonlyArray<SeenChange>>([])
  readonly isLive = signal(false)
  readonly isRead = signal(false)
  readonly problem = signal("")
  readonly isPaused = signal(false)
  /** The number of changes since the feed was paused. */
  readonly waiting = signal(0)
  readonly #ended = new AbortController()
  readonly #drawing = new FrameWork(() => this.#draw())

  constructor() {
    void this.#follow()
  }

  close(): void {
    this.#drawing.cancel()
    this.#ended.abort()
  }

  pause(): void {
    this.isPaused.value = true
  }

  resume(): void {
    this.isPaused.value = false
    this.waiting.value = 0
    this.shown.value = this.#all
  }

  clear(): void {
    this.#all = []
    this.waiting.value = 0
    this.shown.value = []
  }

  #add(change: Change): void {
    this.#arrived.push(seen(change))
    if (this.#arrived.length > maxChanges) this.#arrived.splice(0, maxChanges / 2)
    this.#drawing.request()
  }

  #draw(): void {
    this.#all = [...this.#all, ...this.#arrived].slice(-maxChanges)
    if (this.isPaused.value) this.waiting.value += this.#arrived.length
    else this.shown.value = this.#all
    this.#arrived = []
    this.isRead.value = true
  }

  async #follow(): Promise<void> {
    const { signal } = this.#ended
    try {
      let first = 0
      let isImmediate = true
      for (;;) {
        const kept = await this.#followOnce(signal, first)
        // The log has been replaced, or the position is no longer kept: start from its end again.
        this.clear()
        if (!isImmediate || kept <= first) await untilNextTry(signal)
        isImmediate = !isImmediate
        first = kept
      }
    } catch (error) {
      if (!isAbort(error)) this.problem.value = messageOf(error)
    }
  }

  /**
   * Follows the log from shortly before its end, but not before `first`. Returns the position after which it is kept.
   */
  async #followOnce(signal: AbortSignal, first: number): Promise<number> {
    const onProblem = (message: string) => {
      this.problem.value = message
    }
    const { lastSeq: end } = await retryUntilDone(() => readEnd(signal), signal, onProblem)
    if (end === 0) this.isRead.value = true
    const after = Math.max(first, end - earlier)
    const onStatus = ({ type }: { readonly type: string }) => {
      this.isLive.value = type === "connected"
      if (type === "connected") setTimeout(() => (this.isRead.value = true), emptyMs)
    }
    for await (const event of followTexts({ after, signal, onStatus })) {
      if (event.type === "change") this.#add(event.change)
      if (event.type === "trimmed") return event.trimmedSeq ?? 0
    }
    return 0
  }
}
