/**
 * A list of names that the service sends in pages. Pages are read as the list is scrolled. Those that are in view are
 * read again when the store has changed.
 */
import { signal } from "@preact/signals"
import { compare } from "../../Client/KeyOrder.ts"
import { isAbort, messageOf } from "../Service/Failure.ts"
import { mayDoBetter, untilNextTry } from "../Service/Persist.ts"

export interface NamePage<A> {
  /** In byte order of their names. */
  readonly items: ReadonlyArray<A>
  /** The end of the log at which it was read. */
  readonly end: string
  /** Where the next page begins, if there is one. */
  readonly cursor: string | undefined
}

export interface NameListOptions<A> {
  readonly nameOf: (item: A) => string
  /** Reads the page at a cursor; the first one without it. */
  readonly read: (cursor: string | undefined, signal: AbortSignal) => Promise<NamePage<A>>
  /** The list is read until it has so many names. */
  readonly most: number
}

/** Where a page begins. Pages that were read again may begin elsewhere than those that were read before. */
interface Start {
  /** The name before it; none for the first page. */
  readonly after: string | undefined
  readonly cursor: string | undefined
  /** The end of the log at which the page was last read, if it was. */
  readAt: string | undefined
}

/** Pages in view that are read again at once. A window has fewer rows than a page. */
const maxAtOnce = 3

export class NameList<A> {
  /** What is known, from the first name on without a gap. */
  readonly items = signal<ReadonlyArray<A>>([])
  /** Whether anything was read. */
  readonly isRead = signal(false)
  /** Whether nothing follows what is known. */
  readonly isComplete = signal(false)
  readonly problem = signal("")
  readonly #ended = new AbortController()
  /** In the order of the list. Of the last one it depends on `readAt` whether the list is complete. */
  #starts: ReadonlyArray<Start> = [{ after: undefined, cursor: undefined, readAt: undefined }]
  #isBusy = false
  /** Whether the next try is to come. */
  #isFailed = false

  constructor(private readonly options: NameListOptions<A>) {}

  close(): void {
    this.#ended.abort(new DOMException("The list is closed", "AbortError"))
  }

  /** Reads the next page, unless one is being read or there are enough. */
  loadMore(): Promise<void> {
    return this.#attempt(async () => {
      const start = this.#starts.at(-1)!
      if (start.readAt === undefined && this.items.value.length < this.options.most) await this.#read(start)
    })
  }

  /** Reads the names that are in view again, where they were not read at this end of the log. */
  refresh(end: string, from: string | undefined, to: string | undefined): Promise<void> {
    return this.#attempt(async () => {
      let index = this.#starts.findLastIndex(({ after }) => isBefore(after, from))
      for (let pages = 0; pages < maxAtOnce; pages++) {
        const start = this.#starts[Math.max(0, index++)]
        if (start === undefined || (pages > 0 && !isBefore(start.after, to))) break
        if (start.readAt !== end) await this.#read(start)
      }
    })
  }

  /** Does one thing at a time, and tries it again while the service is away. */
  async #attempt(work: () => Promise<void>): Promise<void> {
    const { signal } = this.#ended
    if (this.#isBusy || signal.aborted) return
    this.#isBusy = true
    try {
      await work()
      this.problem.value = ""
    } catch (error) {
      if (!isAbort(error)) this.problem.value = messageOf(error)
      if (mayDoBetter(error) && !this.#isFailed) {
        this.#isFailed = true
        untilNextTry(signal).then(
          () => {
            this.#isFailed = false
            return this.#attempt(work)
          },
          () => {}
        )
      }
    } finally {
      this.#isBusy = false
    }
  }

  async #read(start: Start): Promise<void> {
    const { nameOf, read } = this.options
    const page = await read(start.cursor, this.#ended.signal)
    const last = page.items.at(-1)
    const isLast = page.cursor === undefined || last === undefined
    const known = this.items.value
    const before = start.after === undefined ? 0 : this.#after(start.after)
    const behind = isLast ? known.length : this.#after(nameOf(last))
    this.items.value = [...known.slice(0, before), ...page.items, ...known.slice(behind)]
    this.#place(start, page, isLast ? undefined : nameOf(last))
    this.isRead.value = true
    this.isComplete.value = this.#starts.at(-1)!.readAt !== undefined
  }

  /** Puts the start of the next page, which is after `last`, in the place of those that were there up to it. */
  #place(start: Start, page: NamePage<A>, last: string | undefined): void {
    const index = this.#starts.indexOf(start)
    const before = this.#starts.slice(0, index)
    const behind = this.#starts.slice(index + 1)
    const read = { ...start, readAt: page.end }
    if (last === undefined) {
      this.#starts = [...before, read]
      return
    }
    const passed = behind.filter(({ after }) => !isBefore(last, after))
    const next = { after: last, cursor: page.cursor, readAt: passed.at(-1)?.readAt }
    this.#starts = [...before, read, next, ...behind.slice(passed.length)]
  }

  /** How many of the known names are not after a name. */
  #after(name: string): number {
    const known = this.items.value
    let low = 0
    let high = known.length
    while (low < high) {
      const middle = (low + high) >> 1
      if (compare(this.options.nameOf(known[middle]!), name) <= 0) low = middle + 1
      else high = middle
    }
    return low
  }
}

/** Whether a name comes before another one; nothing comes before all names. */
const isBefore = (name: string | undefined, other: string | undefined): boolean =>
  other !== undefined && (name === undefined || compare(name, other) < 0)
