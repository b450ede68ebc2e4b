/** The keys of a namespace with a prefix. They are read in pages, and kept up to date by the change feed. */
import { signal } from "@preact/signals"
import type { EntryKey } from "../../Client/Client.ts"
import { listPage } from "../../Client/Reads.ts"
import { follow, requests } from "../Service/Connection.ts"
import { isAbort, messageOf } from "../Service/Failure.ts"
import { FrameWork } from "../Service/Page.ts"
import { isRetryable, untilNextTry } from "../Service/Pause.ts"
import { ListedKeys } from "./ListedKeys.ts"

const pageSize = 500

/** Milliseconds that a list waits for the feed, which may be unavailable, before it reads the first page. */
const feedTimeoutMs = 1500

/** An open list of keys. It must be closed. */
export class KeyList {
  readonly #keys = new ListedKeys()
  /** Increases when the keys or their number have changed, at most once in a frame of the page. */
  readonly revision = signal(0)
  readonly isComplete = signal(false)
  readonly isLoading = signal(false)
  readonly problem = signal("")
  readonly isLive = signal(false)
  readonly #ended = new AbortController()
  readonly #drawing = new FrameWork(() => this.revision.value++)
  /** Increases when the list starts again. A page that was requested before is ignored. */
  #round = 0
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

  get total(): number | undefined {
    return this.#keys.total
  }

  close(): void {
    this.#drawing.cancel()
    this.#ended.abort()
  }

  async loadMore(): Promise<void> {
    if (this.isLoading.value || this.isComplete.value) return
    this.isLoading.value = true
    const round = this.#round
    const options = { prefix: this.prefix, count: true, limit: pageSize, signal: this.#ended.signal }
    try {
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
      const retry = () => (this.problem.value === "" ? undefined : this.loadMore())
      if (isRetryable(error)) untilNextTry(this.#ended.signal).then(retry, () => {})
      // The cursor may be invalid.
      else this.#cursor = undefined
    } finally {
      this.isLoading.value = false
      this.#drawing.request()
      if (round !== this.#round) void this.loadMore()
    }
  }

  /** Follows the feed. The first page is read after the feed has started, so that no change is missed. */
  async #follow(): Promise<void> {
    const { namespace, prefix } = this
    const { signal } = this.#ended
    const timer = setTimeout(() => void this.loadMore(), feedTimeoutMs)
    signal.addEventListener("abort", () => clearTimeout(timer))
    try {
      const onStatus = ({ type }: { readonly type: string }) => {
        this.isLive.value = type === "connected"
      }
      for await (const event of follow({ namespace, prefix, initial: false, signal, onStatus })) {
        if (event.type === "synced") {
          clearTimeout(timer)
          // Pages that were read before the feed started may be outdated.
          this.#round++
          this.#keys.clear()
          this.#cursor = undefined
          this.isComplete.value = false
          void this.loadMore()
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
