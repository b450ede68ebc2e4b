/** Records a history while it happens. */
import type * as H from "./History.ts"

export class Recorder implements H.History {
  readonly header: H.Header
  readonly events: Array<H.Event> = []
  private readonly began = process.hrtime.bigint()
  private readonly records = new Map<string, { readonly change: H.Change; readonly json: string }>()
  private last = -1
  private ids = 0

  /** @param clockError by how many milliseconds the clocks of clients and nodes may differ */
  constructor(seed: string, clockError: number) {
    this.header = { type: "history", version: 1, seed, clockError }
  }

  private at() {
    this.last = Math.max(this.last + 1, Number(process.hrtime.bigint() - this.began))
    return { time: this.last, wall: Date.now() }
  }

  /** Records an operation before it is sent; returns its id. */
  invoke(client: string, node: string, action: H.Action): number {
    const id = ++this.ids
    this.events.push({ type: "invoke", id, client, node, action, ...this.at() })
    return id
  }

  ok(id: number, result: H.Result): void {
    this.events.push({
      type: "ok",
      id,
      result: "changes" in result ? { ...result, changes: this.shared(result.changes) } : result,
      ...this.at()
    })
  }

  fail(id: number, reason: string, refused?: H.Refusal): void {
    this.events.push({ type: "fail", id, reason, ...(refused === undefined ? {} : { refused }), ...this.at() })
  }

  unknown(id: number, reason: string): void {
    this.events.push({ type: "unknown", id, reason, ...this.at() })
  }

  open(open: Omit<H.Open, "type" | "time" | "wall">): void {
    this.events.push({ type: "open", ...open, ...this.at() })
  }

  seen(seen: Omit<H.Seen, "type" | "time" | "wall">): void {
    this.events.push({ type: "seen", ...seen, changes: this.shared(seen.changes), ...this.at() })
  }

  reset(follower: string): void {
    this.events.push({ type: "reset", follower, ...this.at() })
  }

  note(text: string): void {
    this.events.push({ type: "note", text, ...this.at() })
  }

  end(): void {
    this.events.push({ type: "end", ...this.at() })
  }

  /** The same records, one object for all followers that saw the same. */
  private shared(changes: ReadonlyArray<H.Change>): ReadonlyArray<H.Change> {
    return changes.map(change => {
      const json = JSON.stringify(change)
      const key = `${change.seq} ${change.actor}`
      const known = this.records.get(key)
      if (known?.json === json) return known.change
      this.records.set(key, { change, json })
      return change
    })
  }
}
