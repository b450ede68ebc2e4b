/**
 * Histories that live and die with the process, for tests and examples.
 */
import { Clock, type Context, Duration, Effect, Layer, Option } from "effect"
import {
  type Append,
  type EventPage,
  type History,
  type LaunchConfiguration,
  OutOfStep,
  pageCharacters,
  type Receipt,
  type Retention,
  SessionEvents,
  type StoredEvent,
  type Summary,
  type Unfinished
} from "../SessionEvents.ts"
import { mostReceipts } from "./Limits.ts"
import { defaults } from "./Retention.ts"

interface Kept extends StoredEvent {
  readonly timestamp: number
  readonly size: number
}

/** A history, and receipts by their ids with the `seq` of the event that they are kept with, the oldest first. */
interface Held {
  history: History
  readonly kept: Array<Kept>
  bytes: number
  readonly receipts: Map<string, { readonly receipt: Receipt; readonly seq: number }>
}

/** All histories. Each method runs to its end at once, and so is atomic. */
class State {
  private readonly histories = new Map<string, Held>()
  private readonly configurations = new Map<string, LaunchConfiguration>()

  constructor(private readonly retention: Retention) {}

  open(session: string, epoch: string): History {
    const known = this.histories.get(session)
    if (known !== undefined) return known.history
    const history: History = { epoch, headSeq: 0, trimmedSeq: 0, bookmark: null }
    this.histories.set(session, { history, kept: [], bytes: 0, receipts: new Map() })
    return history
  }

  restart(session: string, epoch: string): History {
    this.histories.delete(session)
    return this.open(session, epoch)
  }

  configure(session: string, configuration: LaunchConfiguration): void {
    this.configurations.set(session, configuration)
  }

  configuration(session: string): LaunchConfiguration {
    return this.configurations.get(session) ?? { environment: null, deployment: null }
  }

  summary(session: string): Summary {
    const { deployment, environment } = this.configuration(session)
    return {
      headSeq: this.find(session)?.headSeq ?? null,
      hasEnvironment: environment !== null,
      hasDeployment: deployment !== null
    }
  }

  find(session: string): History | undefined {
    return this.histories.get(session)?.history
  }

  append({ session, epoch, after, timestamp, texts, bookmark, receipt, revoked }: Append): Option.Option<OutOfStep> {
    const found = this.histories.get(session)
    if (found === undefined || found.history.epoch !== epoch || found.history.headSeq !== after) {
      return Option.some(new OutOfStep({ session, headSeq: found?.history.headSeq ?? null }))
    }
    for (const [index, text] of texts.entries()) {
      const size = Buffer.byteLength(text)
      found.kept.push({ seq: after + 1 + index, text, timestamp, size })
      found.bytes += size
    }
    found.history = { ...found.history, headSeq: after + texts.length, bookmark }
    if (revoked !== undefined) found.receipts.delete(revoked)
    if (receipt !== undefined) {
      found.receipts.delete(receipt.id)
      found.receipts.set(receipt.id, { receipt, seq: after + texts.length })
      if (found.receipts.size > mostReceipts) found.receipts.delete(found.receipts.keys().next().value!)
    }
    const { events, bytes } = this.retention
    this.dropWhile(session, () => found.kept.length > events || (found.bytes > bytes && found.kept.length > 1))
    return Option.none()
  }

  receipt(session: string, id: string): Receipt | undefined {
    return this.histories.get(session)?.receipts.get(id)?.receipt
  }

  read(session: string, after: number, limit: number): EventPage | undefined {
    const found = this.histories.get(session)
    if (found === undefined) return undefined
    const { history, kept } = found
    const events: Array<StoredEvent> = []
    let characters = 0
    for (let i = Math.max(0, after - history.trimmedSeq); i < kept.length && events.length < limit; i++) {
      const { seq, text } = kept[i]!
      events.push({ seq, text })
      characters += text.length
      if (characters >= pageCharacters) break
    }
    return { events, history }
  }

  remove(session: string): void {
    this.histories.delete(session)
    this.configurations.delete(session)
  }

  unfinished(): ReadonlyArray<Unfinished> {
    return [...this.histories].flatMap(([session, { history }]) =>
      history.bookmark === null ? [] : [{ session, bookmark: history.bookmark }]
    )
  }

  trim(before: number): number {
    let count = 0
    for (const [session] of this.histories) count += this.dropWhile(session, oldest => oldest.timestamp < before)
    return count
  }

  private dropWhile(session: string, isTooMuch: (oldest: Kept) => boolean): number {
    const found = this.histories.get(session)!
    let count = 0
    for (let oldest = found.kept[0]; oldest !== undefined && isTooMuch(oldest); oldest = found.kept[0]) {
      found.kept.shift()
      found.bytes -= oldest.size
      found.history = { ...found.history, trimmedSeq: oldest.seq }
      count++
    }
    for (const [id, { seq }] of found.receipts) {
      if (seq > found.history.trimmedSeq) break
      found.receipts.delete(id)
    }
    return count
  }
}

const make = (state: State): Context.Tag.Service<SessionEvents> => ({
  open: (session, epoch) => Effect.sync(() => state.open(session, epoch)),
  find: session => Effect.sync(() => Option.fromNullable(state.find(session))),
  append: append =>
    Effect.suspend(() => Option.match(state.append(append), { onNone: () => Effect.void, onSome: Effect.fail })),
  read: (session, after, limit) => Effect.sync(() => Option.fromNullable(state.read(session, after, limit))),
  receipt: (session, id) => Effect.sync(() => Option.fromNullable(state.receipt(session, id))),
  restart: (session, epoch) => Effect.sync(() => state.restart(session, epoch)),
  configure: (session, configuration) => Effect.sync(() => state.configure(session, configuration)),
  configuration: session => Effect.sync(() => state.configuration(session)),
  summaries: sessions => Effect.sync(() => sessions.map(session => state.summary(session))),
  remove: session => Effect.sync(() => state.remove(session)),
  unfinished: Effect.sync(() => state.unfinished()),
  trim: age => Effect.map(Clock.currentTimeMillis, now => state.trim(now - Duration.toMillis(age)))
})

/** Empty histories. Each build of the layer has its own. */
export const layer = (retention: Retention = defaults): Layer.Layer<SessionEvents> =>
  Layer.sync(SessionEvents, () => make(new State(retention)))
