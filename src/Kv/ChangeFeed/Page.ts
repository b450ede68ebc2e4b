/**
 * Pages of the change log in each form in which they are sent, and the readers that need a page.
 */
import { textFrame } from "../../Http/WebSocket.ts"
import type { EncodedChange } from "../Change.ts"
import { type ChangePage, type ChangeQuery, selects } from "../ChangeLog.ts"

/**
 * Answers with more characters are kept as bytes. Node copies a text for each client that does not take it at once. All
 * receivers share bytes.
 */
const largeText = 16_384

/** How far a reader has read a log. */
export interface Position {
  /** The epoch of the log. */
  readonly epoch: string
  /** The last `seq` scanned. */
  readonly after: number
}

/** A page of the log in each form in which it is sent. Each form is made at most once for all readers of the page. */
export class Page {
  private answerBody: string | Uint8Array | undefined
  private eventBytes: Uint8Array | undefined
  private frameBytes: Buffer | undefined
  private bytes: number | undefined
  private lastSeqByTenant: ReadonlyMap<string, number> | undefined
  private lastSeqByNamespace: ReadonlyMap<string, number> | undefined

  constructor(
    private readonly records: ReadonlyArray<EncodedChange>,
    readonly lastSeq: number,
    readonly epoch: string,
    /** Whether no later commit can add to it. */
    readonly isComplete: boolean
  ) {}

  static of({ changes, epoch, isComplete, lastSeq }: ChangePage): Page {
    return new Page(changes, lastSeq, epoch, isComplete)
  }

  /** A page without changes, which only shows how far the log was scanned. */
  static empty(lastSeq: number, epoch: string): Page {
    return new Page([], lastSeq, epoch, false)
  }

  /** The position after the page. */
  get end(): Position {
    return { epoch: this.epoch, after: this.lastSeq }
  }

  get count(): number {
    return this.records.length
  }

  /** The JSON array of the change records. */
  get changes(): string {
    return `[${this.records.map(({ json }) => json).join(",")}]`
  }

  /** The answer to a poll. */
  get answer(): string | Uint8Array {
    if (this.answerBody === undefined) {
      const text = `{"changes":${this.changes},"lastSeq":${this.lastSeq}}`
      this.answerBody = text.length < largeText ? text : Buffer.from(text)
    }
    return this.answerBody
  }

  /** The Server-Sent Events, one for each change. JSON text has no line breaks, so that one `data` line contains it. */
  get events(): Uint8Array {
    this.eventBytes ??= Buffer.from(
      this.records.map(({ json, seq }) => `id: ${seq}@${this.epoch}\ndata: ${json}\n\n`).join("")
    )
    return this.eventBytes
  }

  /** The frame of a WebSocket. */
  get frame(): Buffer {
    this.frameBytes ??= textFrame(
      `{"type":"changes","changes":${this.changes},"lastSeq":${this.lastSeq},"epoch":"${this.epoch}"}`
    )
    return this.frameBytes
  }

  /** The approximate memory of the page with all its forms, in bytes. */
  get weight(): number {
    this.bytes ??= this.records.reduce((sum, { json }) => sum + 3 * json.length, 256)
    return this.bytes
  }

  /** The last `seq` of each tenant that has changes here. */
  get lastSeqs(): ReadonlyMap<string, number> {
    this.lastSeqByTenant ??= new Map(this.records.map(({ seq, tenant }) => [tenant, seq]))
    return this.lastSeqByTenant
  }

  /** The last `seq` of each namespace that has changes here. */
  get lastSeqsOfNamespaces(): ReadonlyMap<string, number> {
    this.lastSeqByNamespace ??= new Map(this.records.map(({ namespace, seq }) => [namespace, seq]))
    return this.lastSeqByNamespace
  }

  /** Whether the page has a record after `after` that a query selects. */
  hasFor(query: ChangeQuery, after: number): boolean {
    return this.records.some(record => record.seq > after && selects(query, record))
  }

  /** Applies a query to an unfiltered page. Returns at least one page. The last one ends where this page ends. */
  split(query: ChangeQuery): readonly [Page, ...Array<Page>] {
    const { after, limit } = query
    const records = this.records.filter(record => record.seq > after && selects(query, record))
    if (records.length <= limit) {
      return [records.length === this.records.length ? this : new Page(records, this.lastSeq, this.epoch, false)]
    }
    const head = new Page(records.slice(0, limit), records[limit - 1]!.seq, this.epoch, true)
    const pages: [Page, ...Array<Page>] = [head]
    for (let start = limit; start < records.length; start += limit) {
      const part = records.slice(start, start + limit)
      const isLast = start + limit >= records.length
      pages.push(new Page(part, isLast ? this.lastSeq : part.at(-1)!.seq, this.epoch, !isLast))
    }
    return pages
  }
}

/**
 * Readers indexed by their tenant or namespace, so that the cost of a commit is proportional to the number of its
 * readers.
 */
export class ReadersByPart<A extends { readonly query: ChangeQuery }> {
  private readonly tenants = new Map<string, Set<A>>()
  private readonly namespaces = new Map<string, Set<A>>()
  private count = 0

  get size(): number {
    return this.count
  }

  add(reader: A): void {
    const { namespace, tenant } = reader.query
    const [groups, name] = namespace === undefined ? [this.tenants, tenant] : [this.namespaces, namespace]
    const group = groups.get(name)
    if (group === undefined) groups.set(name, new Set([reader]))
    else group.add(reader)
    this.count++
  }

  /** Returns whether the reader was present. */
  delete(reader: A): boolean {
    const { namespace, tenant } = reader.query
    const [groups, name] = namespace === undefined ? [this.tenants, tenant] : [this.namespaces, namespace]
    const group = groups.get(name)
    if (group === undefined || !group.delete(reader)) return false
    if (group.size === 0) groups.delete(name)
    this.count--
    return true
  }

  all(): ReadonlyArray<A> {
    return [...this.tenants.values(), ...this.namespaces.values()].flatMap(group => [...group])
  }

  /** Groups of readers that may need changes of an unfiltered page, each with the last `seq` of these changes. */
  groupsOf(page: Page): ReadonlyArray<{ readonly readers: ReadonlySet<A>; readonly lastSeq: number }> {
    if (page.count === 0) return []
    const found: Array<{ readonly readers: ReadonlySet<A>; readonly lastSeq: number }> = []
    const add = (readers: ReadonlySet<A> | undefined, lastSeq: number): void => {
      if (readers !== undefined) found.push({ readers, lastSeq })
    }
    const all = this.tenants.get("")
    add(all, page.lastSeq)
    if (this.count === (all?.size ?? 0)) return found
    for (const [tenant, seq] of page.lastSeqs) if (tenant !== "") add(this.tenants.get(tenant), seq)
    if (this.namespaces.size === 0) return found
    for (const [namespace, seq] of page.lastSeqsOfNamespaces) add(this.namespaces.get(namespace), seq)
    return found
  }
}
