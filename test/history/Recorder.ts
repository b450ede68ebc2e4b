/** Records a history while it happens. */
import type * as H from "./History.ts"

type WithoutTime<E> = E extends H.Event ? Omit<E, "time" | "wall"> : never
type Undated = WithoutTime<H.Event>

export class Recorder implements H.History {
  readonly header: H.Header
  readonly events: Array<H.Event> = []
  private readonly began = process.hrtime.bigint()
  private readonly records = new Map<string, { readonly change: H.Change; readonly json: string }>()
  private last = -1
  private ids = 0
  private isOver = false
  ended = 0

  /**
   * @param clockError by how many milliseconds the clocks of clients and nodes may differ
   * @param whenEnded called at the end of each operation
   */
  constructor(
    seed: string,
    clockError: number,
    private readonly whenEnded: () => void = () => {}
  ) {
    this.header = { type: "history", version: 1, seed, clockError }
  }

  private push(event: Undated): void {
    if (this.isOver) return
    this.last = Math.max(this.last + 1, Number(process.hrtime.bigint() - this.began))
    this.events.push({ ...event, time: this.last, wall: Date.now() })
    if (event.type !== "ok" && event.type !== "fail" && event.type !== "unknown") return
    this.ended++
    this.whenEnded()
  }

  /** Records an operation before it is sent; returns its id. */
  invoke(client: string, node: string, action: H.Action): number {
    const id = ++this.ids
    this.push({ type: "invoke", id, client, node, action })
    return id
  }

  ok(id: number, result: H.Result): void {
    const shared = "changes" in result ? { ...result, changes: this.shared(result.changes) } : result
    this.push({ type: "ok", id, result: shared })
  }

  fail(id: number, reason: string, why: Pick<H.Fail, "refused" | "gone"> = {}): void {
    this.push({ type: "fail", id, reason, ...why })
  }

  unknown(id: number, reason: string): void {
    this.push({ type: "unknown", id, reason })
  }

  open(open: Omit<WithoutTime<H.Open>, "type">): void {
    this.push({ type: "open", ...open })
  }

  seen(seen: Omit<WithoutTime<H.Seen>, "type">): void {
    this.push({ type: "seen", ...seen, changes: this.shared(seen.changes) })
  }

  reset(follower: string): void {
    this.push({ type: "reset", follower })
  }

  note(text: string): void {
    this.push({ type: "note", text })
  }

  /** What comes later is not recorded any more. */
  end(): void {
    this.push({ type: "end" })
    this.isOver = true
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
