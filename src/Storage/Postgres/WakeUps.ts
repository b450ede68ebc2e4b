/**
 * How nodes learn of each other's writes: by notifications of the database, and by asking for the end of the log, which
 * alone is relied on. A notification only makes it quick.
 */
import { Effect, Exit, type Redacted, type Scope } from "effect"
import pg from "pg"
import { StoreUnavailable } from "../../Kv/Store.ts"
import { randomHex } from "../../RandomHex.ts"
import * as Supervision from "../../Supervision.ts"
import { clientConfig, connectClient, queryOn } from "./Database/Client.ts"
import { unavailable } from "./Database/DatabaseError.ts"
import * as Notifications from "./Database/Notifications.ts"
import type { Pool } from "./Database/Pool.ts"
import { Announcements } from "./Kv/Announcements.ts"
import type { LogEnd } from "./Kv/LogEnd.ts"
import * as SessionSignals from "./SessionEvents/SessionSignals.ts"

/** The payload of a notification is the last `seq` that a node has committed. */
const channel = "causeway_changes"

/** Between two probes of the listening connection, and how long a probe may take. */
const probeInterval = "2 seconds"
const probeTimeout = 1500

/** Between two attempts to listen. */
const listenPause = "1 second"

/** Between two questions for the end of the log, with notifications and without. */
const askInterval = { listening: "1 second", polling: "150 millis" } as const

export interface Options {
  readonly pool: Pick<Pool, "read">
  /** The address of the database itself, where notifications are heard. */
  readonly url: Redacted.Redacted
  readonly end: LogEnd
  readonly sessions: SessionSignals.SessionSignals
  /** Asks for the end of the log, and sets it. */
  readonly ask: Effect.Effect<unknown, StoreUnavailable>
}

export interface WakeUps {
  /** Tells the other nodes soon that this one has committed up to here. */
  readonly announce: (lastSeq: number) => void
}

/** A connection that listens until it is lost, or until a notification that it sends to itself does not come back. */
const listen = (
  { sessions, url }: Options,
  onLastSeq: (lastSeq: number) => void,
  onListening: Effect.Effect<void>,
  onEnd: Effect.Effect<void>
) =>
  Effect.gen(function* () {
    const own = `causeway_probe_${yield* randomHex(4)}`
    const client = yield* Effect.acquireRelease(
      Effect.sync(() => new pg.Client(clientConfig(url)).on("error", () => undefined)),
      client =>
        Effect.zipRight(
          onEnd,
          // A lost connection would be waited for.
          Effect.sync(() => client.connection.stream.destroy())
        )
    )
    const lost = Effect.async<never, StoreUnavailable>(resume => {
      const onEnd = (): void => resume(Effect.fail(new StoreUnavailable({ reason: "the listening connection ended" })))
      client.once("end", onEnd)
      return Effect.sync(() => client.off("end", onEnd))
    })
    let onProbe = (): void => {}
    client.on("notification", ({ channel: name, payload = "" }) => {
      if (name === own) onProbe()
      else if (name === SessionSignals.channel) sessions.received(payload)
      else if (/^\d{1,16}$/.test(payload)) onLastSeq(Number(payload))
    })
    /** A notification sent and received, so that a pooler that hands connections on is found out too. */
    const probe = Effect.async<void, StoreUnavailable>(resume => {
      const fail = (reason: string): void => resume(Exit.fail(new StoreUnavailable({ reason })))
      const timer = setTimeout(() => fail(`no notification within ${probeTimeout} ms`), probeTimeout)
      onProbe = () => resume(Exit.void)
      client.query(`NOTIFY ${own}`, error => {
        if (error) resume(Exit.fail(unavailable(error)))
      })
      return Effect.sync(() => clearTimeout(timer))
    }).pipe(
      Effect.ensuring(
        Effect.sync(() => {
          onProbe = () => {}
        })
      )
    )
    yield* Effect.tryPromise({ try: () => connectClient(client, probeTimeout), catch: unavailable })
    const channels = [channel, SessionSignals.channel, own].map(name => `LISTEN ${name}`).join("; ")
    yield* queryOn(client, channels, [], probeTimeout)
    const probing = Effect.forever(Effect.zipRight(probe, Effect.zipRight(onListening, Effect.sleep(probeInterval))))
    return yield* Effect.raceFirst(probing, lost)
  }).pipe(Effect.scoped)

/** Listens, asks and announces until the scope closes. */
export const make = (options: Options): Effect.Effect<WakeUps, never, Scope.Scope> =>
  Effect.gen(function* () {
    const { ask, end, pool } = options
    let isListening = false
    let onPolling = (): void => {}
    const setListening = (now: boolean) =>
      Effect.sync(() => {
        const was = isListening
        isListening = now
        options.sessions.isListening = now
        if (was && !now) onPolling()
      })
    const announcements = new Announcements(() => performance.now())
    const onLastSeq = (lastSeq: number): void => {
      end.advance(lastSeq)
      announcements.heard(lastSeq)
    }
    const listening = Supervision.outage("listening for writes of other nodes")
    yield* Supervision.forkScoped(
      "listening",
      Effect.forever(
        Effect.matchCauseEffect(
          listen(options, onLastSeq, Effect.zipRight(setListening(true), listening.over), setListening(false)),
          { onFailure: listening.failed, onSuccess: () => Effect.void }
        ).pipe(Effect.zipRight(Effect.sleep(listenPause)))
      )
    )

    /** Sleeps until the next question, which comes at once when notifications stop. */
    const pause = Effect.suspend(() =>
      Effect.raceFirst(
        Effect.sleep(isListening ? askInterval.listening : askInterval.polling),
        Effect.async<void>(resume => {
          onPolling = () => resume(Effect.void)
        })
      )
    )
    const asking = Supervision.outage("asking for the end of the log")
    const askOnce = Effect.matchCauseEffect(ask, { onFailure: asking.failed, onSuccess: () => asking.over })
    yield* Supervision.forkScoped("asking for the end of the log", Effect.forever(Effect.zipRight(askOnce, pause)))

    let onWork = (): void => {}
    const work = Effect.async<void>(resume => {
      const check = (): void => {
        if (announcements.isPending) resume(Effect.void)
      }
      onWork = check
      check()
    })
    const untilTurn: Effect.Effect<void> = Effect.suspend(() => {
      const millis = announcements.isPending ? announcements.wait() : 0
      return millis > 0 ? Effect.zipRight(Effect.sleep(millis), untilTurn) : Effect.void
    })
    const send = Effect.suspend(() => {
      const lastSeq = announcements.take()
      return lastSeq === undefined ? Effect.void : Notifications.send(pool, channel, [String(lastSeq)])
    })
    yield* Supervision.forkScoped(
      "announcing writes",
      // The others ask too: a notification that is lost makes them late by as much.
      Effect.forever(Effect.zipRight(work, Effect.zipRight(untilTurn, Effect.ignore(send))))
    )

    yield* options.sessions.run(pool)

    return {
      announce: lastSeq => {
        announcements.committed(lastSeq)
        onWork()
      }
    }
  })
