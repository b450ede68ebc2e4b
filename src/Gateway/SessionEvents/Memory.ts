/**
 * Histories in memory, for tests and examples.
 */
import { Clock, type Context, Duration, Effect, Layer, Option } from "effect"
import {
  type ActivePosition,
  type ActiveQuery,
  type Activity,
  type ActivityCount,
  type Append,
  type Checkpoint,
  type EventPage,
  type History,
  type LaunchConfiguration,
  type Opened,
  OutOfStep,
  pageOf,
  type Receipt,
  type Retention,
  SessionEvents,
  type StoredEvent,
  type Summary
} from "../SessionEvents.ts"
import { activityOf, bitFilter, bitsOf, positionOf } from "./ActivityBits.ts"
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
  checkpoint?: Checkpoint
  activity: Activity
  /** When the session was last active. */
  activeAt: number
  /** By id, oldest first. `seq` is the event with which the receipt is kept. */
  readonly receipts: Map<string, { readonly receipt: Receipt; readonly seq: number }>
}

/** Removes the oldest events while a condition holds. Returns how many. */
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

/** Appends to a history that is where the append expects it. */
const append = (
  held: Held,
  { activity, after, receipt, recoveryState, revoked, texts, timestamp }: Append,
  limits: Retention
) => {
  for (const [index, text] of texts.entries()) {
    const size = Buffer.byteLength(text)
    held.kept.push({ seq: after + 1 + index, text, timestamp, size })
    held.bytes += size
  }
  held.history = { ...held.history, headSeq: after + texts.length, recoveryState }
  if (activity !== undefined) {
    const { at, ...rest } = activity
    held.activity = rest
    held.activeAt = Math.max(held.activeAt, at)
  }
  if (revoked !== undefined) held.receipts.delete(revoked)
  if (receipt !== undefined) {
    held.receipts.delete(receipt.id)
    held.receipts.set(receipt.id, { receipt, seq: after + texts.length })
    if (held.receipts.size > maxReceipts) held.receipts.delete(held.receipts.keys().next().value!)
  }
  dropWhile(held, () => held.kept.length > limits.events || (held.bytes > limits.bytes && held.kept.length > 1))
}

const pageAfter = ({ history, kept }: Held, after: number, limit: number): EventPage => {
  const first = Math.max(0, after - history.trimmedSeq)
  return { events: pageOf(kept.slice(first, first + limit).map(({ seq, text }) => ({ seq, text }))), history }
}

const lastEventAt = ({ activeAt, history, kept }: Held): number | null =>
  history.headSeq === 0 ? null : (kept.at(-1)?.timestamp ?? activeAt)

const openedOf = (held: Held): Opened => ({
  ...held.history,
  activity: held.activity,
  lastEventAt: lastEventAt(held)
})

const compare = (a: ActivePosition, b: ActivePosition): number =>
  a.at - b.at || Number(a.session > b.session) - Number(a.session < b.session)

/** What is stored, by session. */
class Stored {
  readonly histories = new Map<string, Held>()
  readonly configurations = new Map<string, LaunchConfiguration>()

  open(session: string, epoch: string, now: number): Opened {
    const known = this.histories.get(session)
    if (known !== undefined) return openedOf(known)
    const history: History = { epoch, headSeq: 0, trimmedSeq: 0, recoveryState: null }
    const held: Held = { history, kept: [], bytes: 0, activity: activityOf(0), activeAt: now, receipts: new Map() }
    this.histories.set(session, held)
    return openedOf(held)
  }

  active(query: ActiveQuery): ReadonlyArray<ActivePosition> {
    const { isBefore, ...position } = positionOf(query)
    const { mask, wanted } = bitFilter(query.filter)
    const found: Array<ActivePosition> = []
    for (const [session, { activeAt: at, activity }] of this.histories) {
      if (!session.startsWith(`${query.tenant}/`) || (bitsOf(activity) & mask) !== wanted) continue
      const order = compare({ at, session }, position)
      if (isBefore ? order < 0 : order > 0) found.push({ at, session })
    }
    return found.sort((a, b) => (isBefore ? compare(b, a) : compare(a, b))).slice(0, query.limit)
  }

  counts(limit: number, tenant?: string): ReadonlyArray<ActivityCount> {
    const tenantOf = (session: string) => session.slice(0, session.indexOf("/"))
    const counted = [...this.histories]
      .filter(([session]) => tenant === undefined || tenantOf(session) === tenant)
      .slice(0, limit)
      .map(([session, { activity }]) => ({ tenant: tenantOf(session), ...activity }))
    return [...Map.groupBy(counted, one => JSON.stringify(one)).values()].map(same => ({
      ...same[0]!,
      count: same.length
    }))
  }

  saveCheckpoint(session: string, checkpoint: Checkpoint): void {
    const { epoch, seq } = checkpoint
    const held = this.histories.get(session)
    if (held === undefined || held.history.epoch !== epoch || held.history.headSeq < seq) return
    const { checkpoint: known } = held
    if (known === undefined || known.epoch !== epoch || known.seq <= seq) held.checkpoint = checkpoint
  }

  configuration(session: string): LaunchConfiguration {
    return this.configurations.get(session) ?? { environment: null, deployment: null }
  }

  summary(session: string): Summary {
    const { deployment, environment } = this.configuration(session)
    const held = this.histories.get(session)
    return {
      headSeq: held?.history.headSeq ?? null,
      ...(held === undefined ? activityOf(0) : held.activity),
      lastEventAt: held === undefined ? null : lastEventAt(held),
      hasEnvironment: environment !== null,
      hasDeployment: deployment !== null
    }
  }
}

const make = (retention: Retention): Context.Tag.Service<SessionEvents> => {
  const stored = new Stored()
  const { configurations, histories } = stored
  const open = (session: string, epoch: string) =>
    Effect.map(Clock.currentTimeMillis, now => stored.open(session, epoch, Math.trunc(now)))
  return {
    create: (session, epoch, activeAt) =>
      Effect.asVoid(
        activeAt === undefined ? open(session, epoch) : Effect.sync(() => stored.open(session, epoch, activeAt))
      ),
    open,
    release: () => Effect.void,
    find: session => Effect.sync(() => Option.fromNullable(histories.get(session)?.history)),
    append: request =>
      Effect.suspend((): Effect.Effect<void, OutOfStep> => {
        const { after, epoch, session } = request
        const held = histories.get(session)
        if (held === undefined || held.history.epoch !== epoch || held.history.headSeq !== after) {
          return new OutOfStep({ session, headSeq: held?.history.headSeq ?? null })
        }
        return Effect.sync(() => append(held, request, retention))
      }),
    read: (session, after, limit) =>
      Effect.sync(() => Option.map(Option.fromNullable(histories.get(session)), held => pageAfter(held, after, limit))),
    receipt: (session, id) => Effect.sync(() => Option.fromNullable(histories.get(session)?.receipts.get(id)?.receipt)),
    checkpoint: session => Effect.sync(() => Option.fromNullable(histories.get(session)?.checkpoint)),
    saveCheckpoint: (session, checkpoint) => Effect.sync(() => stored.saveCheckpoint(session, checkpoint)),
    renewEpoch: (session, epoch) =>
      Effect.suspend(() => {
        const known = histories.get(session)
        if (known !== undefined) known.history = { ...known.history, epoch }
        return open(session, epoch)
      }),
    configure: (session, configuration) => Effect.sync(() => void configurations.set(session, configuration)),
    configuration: session => Effect.sync(() => stored.configuration(session)),
    summaries: sessions => Effect.sync(() => sessions.map(session => stored.summary(session))),
    active: query => Effect.sync(() => stored.active(query)),
    counts: (limit, tenant) => Effect.sync(() => stored.counts(limit, tenant)),
    sessions: (after, limit) =>
      Effect.sync(() => {
        const all = [...new Set([...histories.keys(), ...configurations.keys()])].sort()
        return all.filter(session => session > after).slice(0, limit)
      }),
    remove: session =>
      Effect.sync(() => {
        histories.delete(session)
        configurations.delete(session)
      }),
    unfinished: Effect.sync(() =>
      [...histories].flatMap(
        ([
          session,
          {
            history: { recoveryState }
          }
        ]) => (recoveryState === null ? [] : [{ session, recoveryState }])
      )
    ),
    isShared: false,
    abandoned: Effect.succeed([]),
    taken: Effect.never,
    trim: age =>
      Effect.map(Clock.currentTimeMillis, now => {
        const before = now - Duration.toMillis(age)
        return [...histories.values()].reduce(
          (count, held) => count + dropWhile(held, ({ timestamp }) => timestamp < before),
          0
        )
      })
  }
}

/** Empty histories. Each build of the layer has its own. */
export const layer = (retention: Retention = defaults): Layer.Layer<SessionEvents> =>
  Layer.sync(SessionEvents, () => make(retention))
