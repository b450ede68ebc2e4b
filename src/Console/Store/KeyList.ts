/** The keys of a part of a namespace: read page by page, and kept up to date by the change feed. */
import { signal } from "@preact/signals"
import type { Change, EntryKey, ListPage } from "../../Client/Client.ts"
import { client, follow } from "../Service/Connection.ts"
import { isAbort, messageOf } from "../Service/Failure.ts"
import { FrameWork } from "../Service/FrameWork.ts"
import { mayDoBetter, untilNextTry } from "../Service/Persist.ts"
import { compareKeys } from "./KeyOrder.ts"

/** Keys in a page. */
const pageSize = 500

/** How long a list waits for the feed, which may be out of reach. */
const feedWaitMs = 1500

export class KeyList {
  /** In byte order of the key. */
  readonly items: Array<EntryKey> = []
  /** How many keys there are, whether listed yet or not. */
  total: number | undefined = undefined
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
  #pages: AsyncIterator<ListPage<EntryKey>> | undefined

  constructor(
    readonly namespace: string,
    readonly prefix: string
  ) {
    void this.#follow()
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
      this.#pages ??= client.value.listKeys(this.namespace, options)[Symbol.asyncIterator]()
      const { done, value } = await this.#pages.next()
      if (round !== this.#round) return
      if (done) this.isComplete.value = true
      else {
        if (value.count !== undefined) this.total = value.count
        for (const item of value.items) this.#put(item)
        this.isComplete.value = this.items.length >= (this.total ?? Number.POSITIVE_INFINITY)
      }
      this.problem.value = ""
    } catch (error) {
      this.#pages = undefined
      if (!isAbort(error)) this.problem.value = messageOf(error)
      if (mayDoBetter(error)) this.#tryAgain()
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
    this.items.length = 0
    this.#pages = undefined
    this.isComplete.value = false
    this.total = undefined
    await this.loadMore()
  }

  #indexOf(key: string): readonly [index: number, isThere: boolean] {
    let low = 0
    let high = this.items.length
    while (low < high) {
      const middle = (low + high) >> 1
      const order = compareKeys(this.items[middle]!.key, key)
      if (order === 0) return [middle, true]
      if (order < 0) low = middle + 1
      else high = middle
    }
    return [low, false]
  }

  #put(item: EntryKey): void {
    const [index, isThere] = this.#indexOf(item.key)
    if (!isThere) this.items.splice(index, 0, item)
    else if (item.version > this.items[index]!.version) this.items[index] = item
  }

  #apply(change: Change): void {
    const { actor, key, namespace, op, timestamp, version } = change
    const [index, isThere] = this.#indexOf(key)
    // What lies behind the last page will come with its own page.
    if (!isThere && index === this.items.length && !this.isComplete.value) return
    if (op === "delete") {
      if (!isThere || this.items[index]!.version > version) return
      this.items.splice(index, 1)
      if (this.total !== undefined) this.total--
    } else {
      if (!isThere && this.total !== undefined) this.total++
      this.#put({ namespace, key, version, updatedBy: actor, updatedAt: timestamp, expiresAt: null })
    }
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
          this.#apply(event.change)
          this.#drawing.request()
        }
      }
    } catch (error) {
      if (!isAbort(error)) this.problem.value = messageOf(error)
    }
  }
}
