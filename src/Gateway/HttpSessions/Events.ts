/**
 * The events of a session by the read side of the Durable Streams protocol: pages, long polls and streams. And what they
 * are folded into.
 */
import { Clock, type Context, Deferred, Duration, Effect, Either, FiberId, Random } from "effect"
import { MiB } from "../../base/Bytes.ts"
import { turnOf } from "../../base/Time/PacedWork.ts"
import {
  type ApiError,
  BadRequest,
  Gone,
  InternalServerError,
  NotFound,
  ServiceUnavailable
} from "../../Http/ApiError.ts"
import { DrainingSignal } from "../../Http/DrainingSignal.ts"
import * as Reply from "../../Http/Reply.ts"
import { pageEvents, sizeOf } from "../Clients/Replays.ts"
import { Clients, type ClientsShape } from "../Clients.ts"
import { Conversations } from "../Conversations.ts"
import { sharedPool } from "../FairPool.ts"
import * as GatewayMetrics from "../GatewayMetrics.ts"
import type { Caller, Frame, Subscriber, Subscription } from "../Sessions.ts"
import { errorOf } from "../Streams/Errors.ts"
import type { Beginning, Client, Encoding } from "../Streams/EventStream.ts"
import * as EventStreams from "../Streams/EventStreams.ts"
import * as DurableStream from "./DurableStream.ts"
import * as Followed from "./Followed.ts"

/** A page ends with the event that reaches this number of bytes. */
const pageBytes = 8 * MiB

/** Pages that are made at the same time, of which one tenant may have three quarters. */
const pages = 8

/** How long a page may wait for others. */
const pageTimeout = "10 seconds"

/** How long a poll waits for an event. */
const pollTimeout = Duration.seconds(25)

/** A request for events. */
export interface Query extends Client {
  /** The last cursor that the client has received. */
  readonly cursor: string | undefined
  readonly sessionId: string
  readonly offset: string | undefined
  readonly live: "long-poll" | "sse" | undefined
  readonly ifNoneMatch: string | undefined
  readonly isHead: boolean
}

const json = "application/json"
const eventStream = "text/event-stream"

const gone = () => new Gone({ error: "Events after this offset are no longer kept; read from -1" })

/** A stream ends after this time, in milliseconds. */
const streamDuration = 60_000

/** The `data` and `control` events of a stream. The client continues at the last offset. */
const encodingOf = (subscription: Subscription, last: string | undefined, time: EventStreams.Time): Encoding => {
  const cursor = new DurableStream.Cursor(time.wallClock(), last, time.random)
  const offsetAt = DurableStream.offsetsOf(subscription.epoch)
  const write = (frames: ReadonlyArray<Frame>, seq: number, isClosed = false) =>
    DurableStream.eventsOf(frames, {
      offset: offsetAt(seq),
      isUpToDate: seq >= subscription.publishedSeq(),
      isClosed,
      cursor: cursor.at(time.wallClock())
    })
  return { duration: streamDuration, events: write, end: (reason, seq) => write([], seq, reason === "deleted") }
}

/** Where events begin. Only those of an offset that was given to a client must all be kept. */
const beginningOf = (
  start: DurableStream.Start,
  { epoch, headSeq, trimmedSeq }: Subscription
): Either.Either<Pick<Beginning, "after" | "maySkip">, ApiError> => {
  if (start === "first") return Either.right({ after: trimmedSeq, maySkip: true })
  if (start === "now") return Either.right({ after: headSeq, maySkip: true })
  if (start.epoch !== epoch) {
    return Either.left(new Gone({ error: "The offset belongs to a history that was lost; read from -1" }))
  }
  if (start.seq < trimmedSeq) return Either.left(gone())
  return start.seq > headSeq
    ? Either.left(new BadRequest({ error: "The offset is after the newest event of the session" }))
    : Either.right({ after: start.seq, maySkip: false })
}

/** Events that were read. */
interface Page {
  readonly events: ReadonlyArray<Frame>
  /** The offset before the first one. */
  readonly from: string
  readonly end: DurableStream.End
}

/** The answers if the events of a session cannot be read. */
const unreadable = {
  SessionUnreadable: () => Effect.fail(new InternalServerError({ error: "The events of the session cannot be read" })),
  StoreUnavailable: () => Effect.fail(ServiceUnavailable.later("Store unavailable"))
}

/** Reads the events from a position on, up to {@link pageBytes}. `isLost`: whether the history was lost or removed. */
const readPage = (
  { after, maySkip, subscription }: Omit<Beginning, "encoding">,
  isLost: () => boolean
): Effect.Effect<Page, ApiError> =>
  Effect.gen(function* () {
    const offsetAt = DurableStream.offsetsOf(subscription.epoch)
    const events: Array<Frame> = []
    let [from, seq, bytes, last] = [after, after, 0, 0]
    while (bytes < pageBytes && seq < subscription.publishedSeq()) {
      yield* turnOf(last)
      const { frames, trimmedSeq } = yield* subscription.read(seq, pageEvents)
      if (isLost()) return yield* ServiceUnavailable.later("The history of the session was replaced; try again")
      if (trimmedSeq > seq) {
        // What was read remains valid; the next request gets the error.
        if (events.length > 0) break
        if (!maySkip) return yield* gone()
        from = trimmedSeq
        seq = trimmedSeq
      }
      last = sizeOf(frames)
      bytes += last
      let isNew = false
      for (const frame of frames) {
        if (frame.seq !== seq + 1) continue
        isNew = true
        seq = frame.seq
        events.push(frame)
      }
      if (!isNew) break
    }
    const isUpToDate = seq >= subscription.publishedSeq()
    return { events, from: offsetAt(from), end: { offset: offsetAt(seq), isUpToDate, isClosed: false } }
  }).pipe(Effect.catchTags(unreadable))

/** A subscriber to which nothing is sent. */
const silent: Subscriber = { onFrames: () => {}, onDeleted: () => {}, onLost: () => {} }

/** Answers with a page, or says that the client has it. */
const reply = (
  { events, from }: Page,
  end: DurableStream.End,
  ifNoneMatch: string | undefined,
  headers: Readonly<Record<string, string>>
): Reply.Reply => {
  const etag = DurableStream.etagOf(from, end)
  const all = { ...DurableStream.headersOf(end), ...headers, etag }
  return DurableStream.isKnown(ifNoneMatch, etag)
    ? Reply.empty(304, all)
    : Reply.json(DurableStream.arrayOf(events), all)
}

/** Answers that are not those of another time, and must not be stored. */
const uncached = { "cache-control": "no-store" }

/** An answer may be kept by the client, which asks each time whether it has changed. */
const revalidated = { "cache-control": "private, no-cache" }

/** Why a poll has ended. */
type Wake = "events" | "deleted" | "lost" | "time"

const wakeable = () => {
  const woken = Deferred.unsafeMake<Wake>(FiberId.none)
  let isLost = false
  const wake = (reason: Wake) => () => Deferred.unsafeDone(woken, Effect.succeed(reason))
  const onLost = () => {
    isLost = true
    wake("lost")()
  }
  const subscriber = { onFrames: wake("events"), onDeleted: wake("deleted"), onLost }
  return { woken: Deferred.await(woken), subscriber, end: wake("time"), isLost: () => isLost }
}

/** How long a poll of a client waits: not beyond the expiry of its token, so that the next request is answered 401. */
const waitOf = (expiresAt: number | undefined): Effect.Effect<Duration.Duration> =>
  Effect.map(Clock.currentTimeMillis, now =>
    expiresAt === undefined ? pollTimeout : Duration.min(pollTimeout, Duration.millis(Math.max(0, expiresAt - now)))
  )

/** A page once there is one, or 204 after a while. */
const poll = (
  { sessions, tags, takeSlot }: ClientsShape,
  draining: Context.Tag.Service<DrainingSignal>,
  followed: Followed.Followed,
  read: typeof readPage,
  { caller, cursor: last, expiresAt, ifNoneMatch, sessionId }: Query,
  start: DurableStream.Start
): Effect.Effect<Reply.Reply, ApiError> =>
  Effect.gen(function* () {
    const { end, isLost, subscriber, woken } = wakeable()
    const slot = yield* Effect.acquireRelease(
      Effect.suspend(() => {
        const slot = takeSlot(caller.tenant)
        return slot instanceof ServiceUnavailable ? slot : Effect.succeed(slot)
      }),
      slot => Effect.sync(() => slot.release())
    )
    slot.offer({ onReclaim: end })
    const subscription = yield* Effect.mapError(sessions.subscribe(caller, sessionId, subscriber), errorOf)
    yield* followed.enter(caller, sessionId, subscription.epoch)
    const beginning = { subscription, ...(yield* beginningOf(start, subscription)) }
    const isWaiting = beginning.after >= subscription.publishedSeq()
    const wake = isWaiting
      ? yield* Effect.raceAll([
          woken,
          Effect.as(draining.started, "time" as const),
          Effect.as(Effect.delay(Effect.void, yield* waitOf(expiresAt)), "time" as const)
        ])
      : "events"
    const random = yield* Random.next
    const now = yield* Clock.currentTimeMillis
    const cursor = new DurableStream.Cursor(now, last, () => random).at(now)
    if (wake !== "events") {
      // If the session was evicted or has moved, nothing is lost; otherwise the next poll is 410.
      const offset = DurableStream.offsetOf({ epoch: subscription.epoch, seq: beginning.after })
      const end = { offset, isUpToDate: true, isClosed: wake === "deleted", cursor }
      return Reply.empty(204, { ...DurableStream.headersOf(end), ...uncached })
    }
    const page = yield* read(beginning, isLost)
    for (const { type } of page.events) GatewayMetrics.sentOverHttp.increment(type, tags)
    return reply(page, { ...page.end, cursor }, ifNoneMatch, uncached)
  }).pipe(Effect.scoped)

/** The end of the events of a session that was deleted since the client's last request. */
const closed = ({ live }: Query, position: DurableStream.Position): Reply.Reply => {
  const end = { offset: DurableStream.offsetOf(position), isUpToDate: true, isClosed: true }
  const headers = { ...DurableStream.headersOf(end), ...uncached }
  switch (live) {
    case undefined:
      return Reply.json("[]", headers)
    case "long-poll":
      return Reply.empty(204, headers)
    case "sse":
      return Reply.jsonWith(DurableStream.eventsOf([], end), { "content-type": eventStream, ...uncached })
  }
}

/** Answers requests for events. */
export const make = Effect.gen(function* () {
  const conversations = yield* Conversations
  const clients = yield* Clients
  const draining = yield* DrainingSignal
  const followed = yield* Followed.make
  const streams = yield* EventStreams.make("durable_streams")
  const pool = sharedPool("capacity for pages of events", pages)

  const read =
    (tenant: string): typeof readPage =>
    (beginning, isLost) =>
      pool
        .use(tenant, 1, () => readPage(beginning, isLost), pageTimeout)
        .pipe(Effect.catchTag("SessionsBusy", error => Effect.fail(errorOf(error))))

  /** The events that are stored, or with HEAD the position of the newest one. */
  const page = ({ caller, ifNoneMatch, isHead, sessionId }: Query, start: DurableStream.Start) =>
    Effect.gen(function* () {
      const { isLost, subscriber } = wakeable()
      const subscription = yield* Effect.mapError(clients.sessions.subscribe(caller, sessionId, subscriber), errorOf)
      const offsetAt = DurableStream.offsetsOf(subscription.epoch)
      const head = { offset: offsetAt(subscription.headSeq), isUpToDate: true, isClosed: false }
      if (isHead) {
        return Reply.empty(200, { "content-type": json, ...DurableStream.headersOf(head), ...uncached })
      }
      const beginning = { subscription, ...(yield* beginningOf(start, subscription)) }
      const from = offsetAt(beginning.after)
      if (start === "now") {
        return Reply.json("[]", { ...DurableStream.headersOf(head), ...uncached })
      }
      // The client has everything, so nothing has to be read.
      const isKnown = DurableStream.isKnown(ifNoneMatch, DurableStream.etagOf(from, head))
      const made = isKnown ? { events: [], from, end: head } : yield* read(caller.tenant)(beginning, isLost)
      return reply(made, made.end, ifNoneMatch, revalidated)
    }).pipe(Effect.scoped)

  const stream = (query: Query, start: DurableStream.Start) =>
    Effect.map(
      streams.open(query, Effect.succeed(query), (subscription, time) =>
        Effect.zipRight(
          followed.enter(query.caller, query.sessionId, subscription.epoch),
          Either.map(beginningOf(start, subscription), place => ({
            ...place,
            encoding: encodingOf(subscription, query.cursor, time)
          }))
        )
      ),
      opened => Reply.written(eventStream, opened, { ...uncached, "x-accel-buffering": "no" }, opened.release)
    )

  const answer = (query: Query, start: DurableStream.Start): Effect.Effect<Reply.Reply, ApiError> => {
    if (query.isHead || query.live === undefined) return page(query, start)
    if (query.offset === undefined) return new BadRequest({ error: "offset is required with live" })
    return query.live === "sse"
      ? stream(query, start)
      : poll(clients, draining, followed, read(query.caller.tenant), query, start)
  }

  /** Whether a request has failed because its session was deleted, perhaps while its events were read. */
  const isOfDeleted = (error: ApiError, { caller, sessionId }: Query): Effect.Effect<boolean> => {
    if (!(error instanceof Gone)) return Effect.succeed(error instanceof NotFound)
    const found = Effect.as(clients.sessions.get(caller, sessionId), false)
    return Effect.catchAll(found, ({ _tag }) => Effect.succeed(_tag === "SessionNotFound"))
  }

  return {
    /** Answers a request for events. */
    answer: (query: Query): Effect.Effect<Reply.Reply, ApiError> => {
      const started = DurableStream.startOf(query.offset)
      if (Either.isLeft(started)) return new BadRequest({ error: started.left })
      const start = started.right
      return Effect.catchAll(answer(query, start), error =>
        Effect.flatMap(isOfDeleted(error, query), isDeleted =>
          isDeleted && typeof start !== "string" && followed.has(query.caller, query.sessionId, start)
            ? Effect.succeed(closed(query, start))
            : Effect.fail(error)
        )
      )
    },
    /** Answers a request for the conversation of a session, whose tag is the position of its newest event. */
    conversation: (
      caller: Caller,
      sessionId: string,
      ifNoneMatch: string | undefined
    ): Effect.Effect<Reply.Reply, ApiError> =>
      Effect.gen(function* () {
        const subscription = yield* Effect.mapError(clients.sessions.subscribe(caller, sessionId, silent), errorOf)
        const tagged = ({ epoch, seq }: DurableStream.Position) => ({
          etag: `"${DurableStream.offsetOf({ epoch, seq })}"`,
          ...revalidated
        })
        const { epoch, headSeq: seq } = subscription
        const current = tagged({ epoch, seq })
        if (DurableStream.isKnown(ifNoneMatch, current.etag)) return Reply.empty(304, current)
        const read = yield* conversations
          .read(subscription)
          .pipe(Effect.catchTags({ ...unreadable, SessionsBusy: error => Effect.fail(errorOf(error)) }))
        return Reply.json(read.text, tagged(read))
      }).pipe(Effect.scoped)
  }
})
