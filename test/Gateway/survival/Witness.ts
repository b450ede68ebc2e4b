/** What clients of a gateway have received, checked against what it guarantees. */
import { type Event, turnEnds } from "../../../src/Gateway/Protocol.ts"

const ends: ReadonlySet<string> = new Set(turnEnds)

const turnOf = (event: Event): string | undefined => ("turnId" in event ? event.turnId : undefined)

/** Everything that any client has received of all sessions. */
export class Witness {
  /** The text of each event, by session and `seq`. */
  private readonly seen = new Map<string, Map<number, string>>()
  private readonly epochs = new Map<string, string>()
  /** The turns that were accepted, with their sessions. */
  private readonly accepted = new Map<string, string>()
  /** Violations, in sentences. */
  readonly contradictions: Array<string> = []
  /** Events seen for the first time. */
  count = 0

  /** The position in a session's history from which a client resumes. */
  place(sessionId: string): { readonly afterSeq: number; readonly epoch: string } | undefined {
    const epoch = this.epochs.get(sessionId)
    const afterSeq = Math.max(0, ...(this.seen.get(sessionId)?.keys() ?? []))
    return epoch === undefined ? undefined : { afterSeq, epoch }
  }

  /** Records a subscription. */
  subscribed(sessionId: string, epoch: string, recovered: boolean): void {
    const before = this.epochs.get(sessionId)
    if (before !== undefined && before !== epoch) this.contradictions.push(`${sessionId} began another epoch`)
    if (!recovered) this.contradictions.push(`${sessionId} was not recovered`)
    this.epochs.set(sessionId, epoch)
  }

  /** Records an accepted message. */
  accept(sessionId: string, turnId: string): void {
    this.accepted.set(turnId, sessionId)
  }

  /** Records an event, as text. */
  see(event: Event, text: string): void {
    const { sessionId, seq } = event
    const events = this.seen.get(sessionId) ?? new Map<number, string>()
    this.seen.set(sessionId, events)
    const before = events.get(seq)
    if (before === undefined) this.count++
    else if (before !== text) this.contradictions.push(`${sessionId} ${seq} was ${before} and is ${text}`)
    events.set(seq, text)
  }

  /** The events seen of a session, as texts in order. */
  history(sessionId: string): ReadonlyArray<string> {
    return [...(this.seen.get(sessionId) ?? [])].sort(([a], [b]) => a - b).map(([, text]) => text)
  }

  /** The violations of a session with this complete history, as texts in order. */
  judge(sessionId: string, history: ReadonlyArray<string>): ReadonlyArray<string> {
    const found: Array<string> = []
    const events = history.map((text): Event => JSON.parse(text))
    for (const [index, { seq }] of events.entries()) {
      if (seq !== index + 1) found.push(`${sessionId}: seq ${seq} in place of ${index + 1}`)
    }
    for (const [seq, text] of this.seen.get(sessionId) ?? []) {
      if (history[seq - 1] !== text) found.push(`${sessionId} ${seq} was seen as ${text} and is ${history[seq - 1]}`)
    }
    const turns = new Set(events.flatMap(event => turnOf(event) ?? []))
    for (const [turnId, of] of this.accepted) if (of === sessionId) turns.add(turnId)
    for (const turnId of turns) {
      const own = events.filter(event => turnOf(event) === turnId).map(({ type }) => type)
      const ended = own.filter(type => ends.has(type))
      const started = own.filter(type => type === "turn_started")
      if (ended.length !== 1) found.push(`${sessionId}: turn ${turnId} ended ${ended.length} times`)
      if (started.length > 1) found.push(`${sessionId}: turn ${turnId} started ${started.length} times`)
    }
    return found
  }
}
