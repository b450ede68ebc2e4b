import { type StoredChange, toJson } from "../Change.ts"
import type { ChangePage, ChangeQuery } from "../ChangeLog.ts"
import { tenantOf } from "../Tenant.ts"

/** A page of the log as JSON text, shared by all readers that stand at the same place. */
export interface EncodedPage {
  /** The text of the array of change records. */
  readonly changes: string
  readonly count: number
  readonly lastSeq: number
}

/** A change record that is printed when somebody wants its text, and then only once. */
class Item {
  readonly seq: number
  readonly tenant: string
  private text: string | undefined

  constructor(private readonly change: StoredChange) {
    this.seq = change.seq
    this.tenant = tenantOf(change.namespace)
  }

  get json(): string {
    this.text ??= toJson(this.change)
    return this.text
  }

  /** About how many characters the text has. */
  get size(): number {
    const { namespace, key, value, actor } = this.change
    return namespace.length + key.length + actor.length + (value?.length ?? 4) + 160
  }
}

/** A part of the log in each form that followers are sent, every form made at most once. */
export class Page implements EncodedPage {
  private changesText: string | undefined
  private eventBytes: Uint8Array | undefined
  private bytes: number | undefined

  private constructor(
    private readonly items: ReadonlyArray<Item>,
    readonly lastSeq: number
  ) {}

  static of(page: ChangePage): Page {
    return new Page(
      page.changes.map(change => new Item(change)),
      page.lastSeq
    )
  }

  /** A page without changes, which only tells how far the log was scanned. */
  static empty(lastSeq: number): Page {
    return new Page([], lastSeq)
  }

  get count(): number {
    return this.items.length
  }

  get changes(): string {
    this.changesText ??= `[${this.items.map(item => item.json).join(",")}]`
    return this.changesText
  }

  /** The Server-Sent Events, one for each change. JSON text has no line breaks, so that one `data` line holds it. */
  get events(): Uint8Array {
    this.eventBytes ??= Buffer.from(this.items.map(item => `id: ${item.seq}\ndata: ${item.json}\n\n`).join(""))
    return this.eventBytes
  }

  /** About how many bytes the page comes to with all its forms made. */
  get weight(): number {
    this.bytes ??= this.items.reduce((sum, item) => sum + 3 * item.size, 256)
    return this.bytes
  }

  /** The tenants that have changes here. */
  get tenants(): ReadonlySet<string> {
    return new Set(this.items.map(item => item.tenant))
  }

  /**
   * What readers at `after` with this tenant and limit get of an unfiltered page: at least one page, and the last
   * of them ends where this one does.
   */
  split({ after, limit, tenant }: ChangeQuery): readonly [Page, ...Array<Page>] {
    const items = this.items.filter(item => item.seq > after && (tenant === "" || item.tenant === tenant))
    if (items.length <= limit) return [items.length === this.items.length ? this : new Page(items, this.lastSeq)]
    const head = new Page(items.slice(0, limit), items[limit - 1]!.seq)
    const pages: [Page, ...Array<Page>] = [head]
    for (let start = limit; start < items.length; start += limit) {
      const part = items.slice(start, start + limit)
      pages.push(new Page(part, start + limit < items.length ? part.at(-1)!.seq : this.lastSeq))
    }
    return pages
  }
}
