/** What a cache holds: about how many bytes it comes to. */
interface Weighed {
  readonly weight: number
}

/** Pages that were used last. At either bound the page that was not used for longest is dropped. */
export class PageCache<A extends Weighed> {
  private readonly pages = new Map<string, A>()
  private bytes = 0

  constructor(
    private readonly maxPages: number,
    private readonly maxBytes: number
  ) {}

  get(key: string): A | undefined {
    const page = this.pages.get(key)
    if (page !== undefined) {
      this.pages.delete(key)
      this.pages.set(key, page)
    }
    return page
  }

  put(key: string, page: A): void {
    if (page.weight > this.maxBytes) return
    this.drop(key)
    this.pages.set(key, page)
    this.bytes += page.weight
    for (const oldest of this.pages.keys()) {
      if (this.pages.size <= this.maxPages && this.bytes <= this.maxBytes) return
      this.drop(oldest)
    }
  }

  clear(): void {
    this.pages.clear()
    this.bytes = 0
  }

  private drop(key: string): void {
    this.bytes -= this.pages.get(key)?.weight ?? 0
    this.pages.delete(key)
  }
}
