/** The keys of a part of a namespace: read page by page, and kept up to date by the change feed. */
import { signal } from "@preact/signals"
import type { EntryKey } from "../../Client/Client.ts"
import { listPage } from "../../Client/KeyValue/Reads.ts"
import { follow, requests } from "../Service/Connection.ts"
import { isAbort, messageOf } from "../Service/Failure.ts"
import { FrameWork } from "../Service/FrameWork.ts"
import { mayDoBetter, untilNextTry } from "../Service/Persist.ts"
import { ListedKeys } from "./ListedKeys.ts"

/** Keys in a page. */
const pageSize = 500

/** How long a list waits for the feed, which may be out of reach. */
const feedWaitMs = 1500

export class KeyList {
  readonly #keys = new ListedKeys()
  /** Rises when the keys or their number have changed, at most once in a frame of the page. */
  readonly revision = signal(0)
  readonly isComplete = signal(false)
  readonly isLoading = signal(false)
  readonly problem = signal("")
  /** Whether changes come in as they happen. */
  readonly isLive = signal(false)
  readonly #ended = new AbortController()
  readonly #drawing = new FrameWork(() => this.revision.value++)
  /** Whether a page has been read, or is being read. */
  #isBegun = false
  /** Rises when the list is begun anew: a page that was asked for before is of no use then. */
  #round = 0
  /** Where the next page begins; `undefined` before the first one. */
  #cursor: string | undefined

  constructor(
    readonly namespace: string,
    readonly prefix: string
  ) {
    void this.#follow()
  }

  /** In byte order of the key. */
  get items(): ReadonlyArray<EntryKey> {
    return this.#keys.items
  }

  /** How many keys there are, whether listed yet or not. */
  get total(): number | undefined {
    return this.#keys.total
  }

  close(): void {
    this.#drawing.cancel()
    this.#ended.abort(new DOMException("The list is closed", "AbortError"))
  }

  /** Reads the next page, unless one is being read. */
  async loadMore(): Promise<void> {
    if (this.isLoading.value || this.isComplete.value) return
    this.isLoading.value = true
    this.#isBegun = true
    const round = this.#round
    try {
      const { prefix } = this
      const options = { prefix, count: true, limit: pageSize, signal: this.#ended.signal }
      if (this.#cursor === undefined) this.#keys.clear()
      this.#keys.expectPage()
      const page = await listPage(requests.value, this.namespace, options, this.#cursor, true)
      if (round !== this.#round) return
      this.#cursor = page.cursor
      this.isComplete.value = page.cursor === undefined
      this.#keys.add(page, this.isComplete.value)
      this.problem.value = ""
    } catch (error) {
      if (round === this.#round) this.#keys.abandonPage()
      if (!isAbort(error)) this.problem.value = messageOf(error)
      if (mayDoBetter(error)) this.#tryAgain()
      // The service may not know where the page begins any more.
      else this.#cursor = undefined
    } finally {
      this.isLoading.value = false
      this.#drawing.request()
      if (round !== this.#round) void this.loadMore()
    }
  }

  #tryAgain(): void {
    untilNextTry(this.#ended.signal).then(
      () => {
        if (this.problem.value !== "") void this.loadMore()
      },
      () => {}
    )
  }

  /** Begins anew. */
  async reload(): Promise<void> {
    this.#round++
    this.#keys.clear()
    this.#cursor = undefined
    this.isComplete.value = false
    await this.loadMore()
  }

  /** Follows the feed. The first page is read once the feed is there, so that nothing falls between both. */
  async #follow(): Promise<void> {
    const { namespace, prefix } = this
    const { signal } = this.#ended
    const timer = setTimeout(() => void this.loadMore(), feedWaitMs)
    signal.addEventListener("abort", () => clearTimeout(timer))
    try {
      const onStatus = ({ type }: { readonly type: string }) => {
        this.isLive.value = type === "connected"
      }
      for await (const event of follow({ namespace, prefix, initial: false, signal, onStatus })) {
        if (event.type === "synced") {
          clearTimeout(timer)
          // What was read before the feed was there may have changed since.
          if (this.#isBegun) void this.reload()
          else void this.loadMore()
        }
        if (event.type === "change") {
          this.#keys.apply(event.change)
          this.#drawing.request()
        }
      }
    } catch (error) {
      if (!isAbort(error)) this.problem.value = messageOf(error)
    }
  }
}
