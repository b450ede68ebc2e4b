/** The latest changes of the store, as they happen. */
import { signal } from "@preact/signals"
import type { Change } from "../../Client/Client.ts"
import { followTexts } from "../Service/Connection.ts"
import { isAbort, messageOf } from "../Service/Failure.ts"
import { FrameWork } from "../Service/FrameWork.ts"
import { persist, untilNextTry } from "../Service/Persist.ts"
import { endOfLog } from "../Store/Entries.ts"

/** A change without its value, of which only the beginning is kept. */
export interface SeenChange {
  readonly seq: number
  readonly op: "set" | "delete"
  readonly namespace: string
  readonly key: string
  readonly version: number
  readonly actor: string
  readonly timestamp: number
  /** The beginning of the value's JSON. */
  readonly preview: string
}

/** The most changes that are kept; the oldest make room. */
export const maxChanges = 5000

/** Milliseconds after which a feed that is connected and tells nothing counts as empty. */
const emptyMs = 500

/** Changes that are shown from before. */
const before = 200

const previewLength = 200

/** The beginning of a text. A slice alone would keep all of the text in memory. */
const beginningOf = (text: string): string => Array.from(text.slice(0, previewLength)).join("")

const seen = ({ actor, key, namespace, op, seq, timestamp, value, version }: Change): SeenChange => ({
  seq,
  op,
  namespace,
  key,
  version,
  actor,
  timestamp,
  preview: op === "delete" ? "" : beginningOf(String(value))
})

/** A view of the feed, from its opening to its closing. */
export class Changes {
  /** The oldest first. */
  #all: Array<SeenChange> = []
  /** What has come in since the last frame of the page. */
  #arrived: Array<SeenChange> = []
  readonly shown = signal<ReadonlyArray<SeenChange>>([])
  readonly isLive = signal(false)
  /** Whether what is shown is all that there is from before. */
  readonly isRead = signal(false)
  readonly problem = signal("")
  readonly isPaused = signal(false)
  /** Changes that came while the view was paused. */
  readonly waiting = signal(0)
  readonly #ended = new AbortController()
  readonly #drawing = new FrameWork(() => this.#draw())

  constructor() {
    void this.#follow()
  }

  close(): void {
    this.#drawing.cancel()
    this.#ended.abort(new DOMException("The feed is closed", "AbortError"))
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
      let mayHurry = true
      for (;;) {
        const kept = await this.#followOnce(signal, first)
        // The log is another one, or the position is no longer kept: begin at its end again.
        this.clear()
        if (!mayHurry || kept <= first) await untilNextTry(signal)
        mayHurry = !mayHurry
        first = kept
      }
    } catch (error) {
      if (!isAbort(error)) this.problem.value = messageOf(error)
    }
  }

  /**
   * Follows the log from shortly before its end, but not before a position, until it has to be begun anew. Returns the
   * position after which it is kept.
   */
  async #followOnce(signal: AbortSignal, first: number): Promise<number> {
    const onProblem = (message: string) => {
      this.problem.value = message
    }
    const end = await persist(() => endOfLog(signal), signal, onProblem)
    if (end === 0) this.isRead.value = true
    const after = Math.max(first, end - before)
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
