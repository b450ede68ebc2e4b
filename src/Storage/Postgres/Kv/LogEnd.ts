/**
 * How nodes learn of each other's writes: by notifications of the database, and by polling the end of the log. Polling
 * alone is sufficient; a notification only shortens the delay.
 */
import { Duration, Effect, Exit, type Redacted, type Scope } from "effect"
import { randomHex } from "../../../base/RandomHex.ts"
import * as Supervision from "../../../base/Supervision.ts"
import { StoreUnavailable } from "../../../Kv/Store.ts"
import { LastSeq } from "../../Commit/StoreCommit.ts"
import * as Client from "../Database/Client.ts"
import { answeredWithin, unavailable } from "../Database/DatabaseError.ts"
import type { Pool } from "../Database/Pool.ts"
import { notify } from "../Database/Statement.ts"
import {
  pollInterval,
  pollRest,
  type SessionNotifications,
  channel as sessionsChannel
} from "../SessionEvents/SessionNotifications.ts"

/** The payload of a notification is the last `seq` that a node has committed. */
const channel = "causeway_changes"

/** The pause between two probes of the listening connection, and the timeout of a probe. */
const probeInterval = Duration.seconds(2)
const probeTimeoutMillis = 1500

/** The pause between two attempts to listen. */
const listenInterval = Duration.seconds(1)

/** The connection for notifications, and what they advance. */
export interface Options {
  readonly pool: Pick<Pool, "read">
  /** The address of the database itself, which delivers notifications. */
  readonly url: Redacted.Redacted
  readonly end: LogEnd
  readonly sessions: SessionNotifications
  /** Reads the end of the log from the database, and sets `end`. */
  readonly ask: Effect.Effect<unknown, StoreUnavailable>
}

/** Notifications of commits between nodes. */
export interface LogNotifications {
  /** Notifies the other nodes soon that this node has committed up to `lastSeq`. */
  readonly committed: (lastSeq: number) => void
}

/** The time between two notifications of any node, in milliseconds. */
const notifyIntervalMillis = 10

/** The time after which the node sends its notification, however often others have sent theirs, in milliseconds. */
const maxDelayMillis = 50

/**
 * Decides when this node notifies the others of its commits. A notification takes a lock of the whole server at its
 * commit and wakes every node. So all nodes together send about one notification in an interval, whatever their number:
 * a node that has received one waits for the interval, and a node that has received one of a later commit than its own
 * sends none.
 */
export class NotificationSchedule {
  /** The last `seq` to be sent. A later one may be lower if the log was replaced by another. */
  private pending: number | undefined
  private pendingSince = 0
  private sent = 0
  /** When the last notification was received or sent. */
  private lastAt = Number.NEGATIVE_INFINITY

  /** @param now returns monotonic milliseconds */
  constructor(private readonly now: () => number) {}

  get isPending(): boolean {
    return this.pending !== undefined
  }

  /** This node has committed up to `lastSeq`. */
  committed(lastSeq: number): void {
    if (lastSeq === (this.pending ?? this.sent)) return
    if (this.pending === undefined) this.pendingSince = this.now()
    this.pending = Math.max(this.pending ?? 0, lastSeq)
  }

  /** A notification has arrived. A node receives its own notifications too, possibly after a later commit. */
  received(lastSeq: number): void {
    this.lastAt = this.now()
    if (lastSeq !== this.sent && this.pending !== undefined && lastSeq >= this.pending) this.take()
  }

  /** Returns the milliseconds until this node sends its notification, unless it receives another one before. */
  wait(): number {
    const since = Math.max(this.lastAt, this.pendingSince)
    return Math.max(0, Math.min(since + notifyIntervalMillis, this.pendingSince + maxDelayMillis) - this.now())
  }

  /** Returns the last `seq` to be sent now, if any. */
  take(): number | undefined {
    const { pending } = this
    if (pending === undefined) return undefined
    this.lastAt = this.now()
    this.sent = pending
    this.pending = undefined
    return pending
  }
}

/** Listens on a connection until it is lost, or until a notification that it sends to itself does not arrive. */
const listen = (
  { sessions, url }: Options,
  onLastSeq: (lastSeq: number) => void,
  onListening: Effect.Effect<void>,
  onEnd: Effect.Effect<void>
) =>
  Effect.gen(function* () {
    const own = `causeway_probe_${yield* randomHex(4)}`
    const client = yield* Client.scoped(url, { statementTimeout: probeTimeoutMillis })
    yield* Effect.addFinalizer(() => onEnd)
    const lost = Effect.async<never, StoreUnavailable>(resume => {
      const onEnd = (): void => resume(Effect.fail(new StoreUnavailable({ reason: "the listening connection ended" })))
      client.once("end", onEnd)
      return Effect.sync(() => client.off("end", onEnd))
    })
    let onProbe = (): void => {}
    client.on("notification", ({ channel: name, payload = "" }) => {
      if (name === own) onProbe()
      else if (name === sessionsChannel) sessions.received(payload)
      else if (/^\d{1,16}$/.test(payload)) onLastSeq(Number(payload))
    })
    /**
     * Sends a notification and waits for it. This also detects a pooler, which does not deliver it to this connection.
     */
    const probe = Effect.async<void, StoreUnavailable>(resume => {
      onProbe = () => resume(Exit.void)
      client.query(`NOTIFY ${own}`, error => {
        if (error) resume(Exit.fail(unavailable(error)))
      })
    }).pipe(answeredWithin(probeTimeoutMillis))
    const channels = [channel, sessionsChannel, own].map(name => `LISTEN ${name}`).join("; ")
    yield* Client.queryOn(client, channels, [], probeTimeoutMillis)
    const probing = Effect.forever(Effect.zipRight(probe, Effect.zipRight(onListening, Effect.sleep(probeInterval))))
    return yield* Effect.raceFirst(probing, lost)
  }).pipe(Effect.scoped)

/** Listens, polls and notifies until the scope closes. */
export const make = (options: Options): Effect.Effect<LogNotifications, never, Scope.Scope> =>
  Effect.gen(function* () {
    const { ask, end, pool, sessions } = options
    /** Open while no notifications arrive. */
    const stopped = yield* Effect.makeLatch(true)
    const setListening = (isListening: boolean) =>
      Effect.suspend(() => {
        sessions.isListening = isListening
        return isListening ? stopped.close : stopped.open
      })
    const schedule = new NotificationSchedule(() => performance.now())
    const onLastSeq = (lastSeq: number): void => {
      end.advance(lastSeq)
      schedule.received(lastSeq)
    }
    const listening = Supervision.outage("listening for writes of other nodes")
    yield* Supervision.forkScoped(
      "listening",
      Effect.forever(
        Effect.matchCauseEffect(
          listen(options, onLastSeq, Effect.zipRight(setListening(true), listening.over), setListening(false)),
          { onFailure: listening.failed, onSuccess: () => Effect.void }
        ).pipe(Effect.zipRight(Effect.sleep(listenInterval)))
      )
    )

    /** It ends at once when notifications stop. */
    const rest = Effect.raceFirst(Effect.sleep(pollRest), stopped.await)
    yield* Supervision.repeatWhenDueScoped("asking for the end of the log", pollInterval, Effect.as(ask, rest))

    const work = yield* Effect.makeLatch(false)
    const untilTurn: Effect.Effect<void> = Effect.suspend(() => {
      const millis = schedule.isPending ? schedule.wait() : 0
      return millis > 0 ? Effect.zipRight(Effect.sleep(millis), untilTurn) : Effect.void
    })
    const send = Effect.suspend(() => {
      work.unsafeClose()
      const lastSeq = schedule.take()
      return lastSeq === undefined ? Effect.void : pool.read(notify(channel, [String(lastSeq)]))
    })
    yield* Supervision.forkScoped(
      "announcing writes",
      // The others poll too, so a lost notification delays them only until their next query.
      Effect.forever(Effect.zipRight(work.await, Effect.zipRight(untilTurn, Effect.ignore(send))))
    )

    yield* sessions.run(pool)

    return {
      committed: lastSeq => {
        schedule.committed(lastSeq)
        work.unsafeOpen()
      }
    }
  })

interface End {
  readonly epoch: string
  readonly lastSeq: number
}

/** What one node knows. Reads and notifications of several nodes report the end in any order. */
export class LogEnd {
  private readonly end = new LastSeq()
  /** The last known `seq`. */
  last = 0
  private found: End | undefined
  /** The last `seq` that this node has committed. */
  private own = 0
  /** The last `seq` that this node had committed or read when it sent the group at hand. */
  private sentAfter = 0
  /** Whether a group was added to a log that ended before what was known. */
  private isBehind = false

  /** The log has grown to `lastSeq` or beyond. */
  advance(lastSeq: number): void {
    if (lastSeq <= this.last) return
    this.last = lastSeq
    this.end.set(lastSeq)
  }

  /** A group is sent now, in one call or several. Groups must not overlap. */
  sending(): void {
    this.sentAfter = this.least
  }

  /** The node has committed a group, or a part of it, to a log that ended at `base` before. */
  committed(lastSeq: number, base: number): void {
    if (base < Math.max(this.own, this.sentAfter)) this.isBehind = true
    this.own = lastSeq
    this.advance(lastSeq)
  }

  /** What the log had at least: notifications do not count, because any program can send them. */
  private get least(): number {
    return Math.max(this.own, this.found?.lastSeq ?? 0)
  }

  /**
   * Reads the end. Calls must not overlap. If the log ends before changes that this node has committed or read, although
   * it has the same epoch, the database was brought back to an older state: `renewEpoch` runs, and the end is read
   * again.
   *
   * All waiting callers are woken if the log has another epoch, or ends before the end that was known when the read
   * started: a log only grows, so that this is another log.
   */
  read<E>(ask: Effect.Effect<End, E>, renewEpoch: (found: End) => Effect.Effect<void, E>): Effect.Effect<void, E> {
    return Effect.suspend(() => {
      const { found: before, last, least } = this
      return Effect.flatMap(ask, found => {
        this.found = found
        const isSame = found.epoch === before?.epoch
        const isCut = isSame && (this.isBehind || found.lastSeq < least)
        if (!isSame || isCut) {
          this.own = 0
          this.sentAfter = 0
          this.isBehind = false
        }
        if (isCut) return Effect.zipRight(renewEpoch(found), this.read(ask, renewEpoch))
        if ((before === undefined || isSame) && found.lastSeq >= last) this.advance(found.lastSeq)
        else {
          this.end.set(0)
          this.last = found.lastSeq
          this.end.set(found.lastSeq)
        }
        return Effect.void
      })
    })
  }

  awaitPast(seq: number): Effect.Effect<void> {
    return this.end.awaitPast(seq)
  }
}
