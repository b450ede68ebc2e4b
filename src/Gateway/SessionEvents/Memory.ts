/**
 * Histories in memory, for tests and examples.
 */
import { Clock, type Context, Duration, Effect, Layer, Option } from "effect"
import {
  type Append,
  type History,
  type LaunchConfiguration,
  OutOfStep,
  pageOf,
  type Receipt,
  type Retention,
  SessionEvents,
  type StoredEvent
} from "../SessionEvents.ts"
import { maxReceipts } from "./Limits.ts"
import { defaults } from "./Retention.ts"

interface Kept extends StoredEvent {
  readonly timestamp: number
  readonly size: number
}

interface Held {
  history: History
  readonly kept: Array<Kept>
  bytes: number
  /** By id, oldest first. `seq` is the event with which the receipt is kept. */
  readonly receipts: Map<string, { readonly receipt: Receipt; readonly seq: number }>
}

const nothing: LaunchConfiguration = { environment: null, deployment: null }

const make = (retention: Retention): Context.Tag.Service<SessionEvents> => {
  const histories = new Map<string, Held>()
  const configurations = new Map<string, LaunchConfiguration>()

  const open = (session: string, epoch: string): History => {
    const known = histories.get(session)
    if (known !== undefined) return known.history
    const history: History = { epoch, headSeq: 0, trimmedSeq: 0, recoveryState: null }
    histories.set(session, { history, kept: [], bytes: 0, receipts: new Map() })
    return history
  }

  const dropWhile = (held: Held, isTooMuch: (oldest: Kept) => boolean): number => {
    let count = 0
    for (let oldest = held.kept[0]; oldest !== undefined && isTooMuch(oldest); oldest = held.kept[0]) {
      held.kept.shift()
      held.bytes -= oldest.size
      held.history = { ...held.history, trimmedSeq: oldest.seq }
      count++
    }
    for (const [id, { seq }] of held.receipts) {
      if (seq > held.history.trimmedSeq) break
      held.receipts.delete(id)
    }
    return count
  }

  const append = ({ session, epoch, after, timestamp, texts, recoveryState, receipt, revoked }: Append) => {
    const held = histories.get(session)
    if (held === undefined || held.history.epoch !== epoch || held.history.headSeq !== after) {
      return new OutOfStep({ session, headSeq: held?.history.headSeq ?? null })
    }
    for (const [index, text] of texts.entries()) {
      const size = Buffer.byteLength(text)
      held.kept.push({ seq: after + 1 + index, text, timestamp, size })
      held.bytes += size
    }
    held.history = { ...held.history, headSeq: after + texts.length, recoveryState }
    if (revoked !== undefined) held.receipts.delete(revoked)
    if (receipt !== undefined) {
      held.receipts.delete(receipt.id)
      held.receipts.set(receipt.id, { receipt, seq: after + texts.length })
      if (held.receipts.size > maxReceipts) held.receipts.delete(held.receipts.keys().next().value!)
    }
    const { bytes, events } = retention
    dropWhile(held, () => held.kept.length > events || (held.bytes > bytes && held.kept.length > 1))
    return Effect.void
  }

  const configuration = (session: string): LaunchConfiguration => configurations.get(session) ?? nothing

  return {
    create: (session, epoch) => Effect.sync(() => void open(session, epoch)),
    open: (session, epoch) => Effect.sync(() => open(session, epoch)),
    release: () => Effect.void,
    find: session => Effect.sync(() => Option.fromNullable(histories.get(session)?.history)),
    append: request => Effect.suspend((): Effect.Effect<void, OutOfStep> => append(request)),
    read: (session, after, limit) =>
      Effect.sync(() => {
        const held = histories.get(session)
        if (held === undefined) return Option.none()
        const { history, kept } = held
        const first = Math.max(0, after - history.trimmedSeq)
        const events = kept.slice(first, first + limit).map(({ seq, text }): StoredEvent => ({ seq, text }))
        return Option.some({ events: pageOf(events), history })
      }),
    receipt: (session, id) => Effect.sync(() => Option.fromNullable(histories.get(session)?.receipts.get(id)?.receipt)),
    renewEpoch: (session, epoch) =>
      Effect.sync(() => {
        const known = histories.get(session)
        if (known !== undefined) known.history = { ...known.history, epoch }
        return open(session, epoch)
      }),
    configure: (session, configuration) => Effect.sync(() => void configurations.set(session, configuration)),
    configuration: session => Effect.sync(() => configuration(session)),
    summaries: sessions =>
      Effect.sync(() =>
        sessions.map(session => {
          const { deployment, environment } = configuration(session)
          const headSeq = histories.get(session)?.history.headSeq ?? null
          return { headSeq, hasEnvironment: environment !== null, hasDeployment: deployment !== null }
        })
      ),
    sessions: (after, limit) =>
      Effect.sync(() => {
        const all = new Set([...histories.keys(), ...configurations.keys()])
        return [...all]
          .filter(session => session > after)
          .sort()
          .slice(0, limit)
      }),
    remove: session =>
      Effect.sync(() => {
        histories.delete(session)
        configurations.delete(session)
      }),
    unfinished: Effect.sync(() =>
      [...histories].flatMap(([session, { history }]) => {
        const { recoveryState } = history
        return recoveryState === null ? [] : [{ session, recoveryState }]
      })
    ),
    isShared: false,
    abandoned: Effect.succeed([]),
    taken: Effect.never,
    trim: age =>
      Effect.map(Clock.currentTimeMillis, now => {
        const before = now - Duration.toMillis(age)
        let count = 0
        for (const held of histories.values()) count += dropWhile(held, ({ timestamp }) => timestamp < before)
        return count
      })
  }
}

/** Empty histories. Each build of the layer has its own. */
export const layer = (retention: Retention = defaults): Layer.Layer<SessionEvents> =>
  Layer.sync(SessionEvents, () => make(retention))
