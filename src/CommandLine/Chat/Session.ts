/** The connection to the gateway, and the session of a conversation. */
import { Clock, Deferred, Duration, Effect, Option, type Redacted, Runtime, Schema, type Scope, Stream } from "effect"
import * as Client from "../../Client/Effect/Client.ts"
import { Event } from "../../Gateway/Protocol.ts"
import { clean } from "../Terminal/Text.ts"
import type { Display, Fatal } from "./Display.ts"
import * as Screen from "./Screen.ts"
import type { State } from "./State.ts"

/** The session and the gateway. */
export interface Options {
  /** The address of the service. */
  readonly url: string
  /** `""` if there is none. */
  readonly token: Redacted.Redacted
  /** The session to continue; default a new one. */
  readonly session: Option.Option<string>
  readonly agentType: string
  /** How long to try to reconnect; default 10 minutes. */
  readonly giveUpAfter?: Duration.DurationInput
  /** How long an answer may take, from the last event that was received; default a minute. */
  readonly timeout?: Duration.DurationInput
}

/** How long to wait for missed events before the first line is read. */
const catchUpTimeout = "30 seconds"

const trimmed = "· events that are no longer kept are missing here"
const reset = "· the history was reset; this is the new one"

/** A newer gateway may send other events, which are not shown. */
const isKnown = Schema.is(Event)

/** Notes lost and restored connections. Completes `ended` if reconnecting takes too long. */
const connectionNotes = (options: Options, { note, paint }: Display, ended: Deferred.Deferred<never, Fatal>) =>
  Effect.gen(function* () {
    const runFork = Runtime.runFork(yield* Effect.runtime())
    const clock = yield* Clock.clockWith(Effect.succeed)
    const giveUpAfter = Duration.toMillis(options.giveUpAfter ?? "10 minutes")
    let lostAt: number | undefined
    let isConnected = false
    return (status: Client.ConnectionStatus) => {
      const now = Number(clock.unsafeCurrentTimeNanos()) / 1e6
      if (status.type === "connected") {
        if (lostAt !== undefined) runFork(note(paint.yellow("· connected again")))
        lostAt = undefined
        isConnected = true
        return
      }
      if (!isConnected) return
      const { message } = status.error
      if (lostAt === undefined) runFork(note(paint.yellow(`· ${clean(message)}; connecting again`)))
      lostAt ??= now
      if (now - lostAt >= giveUpAfter) {
        Deferred.unsafeDone(ended, new Client.ConnectionFailed({ message, isTimeout: true }))
      }
    }
  })

/** A session of the gateway. */
export interface Session {
  readonly id: string
  readonly sessions: Client.SessionsService
}

/** Connects to the gateway until the scope closes, and creates the session unless it is continued. */
export const open = (
  options: Options,
  display: Display,
  ended: Deferred.Deferred<never, Fatal>
): Effect.Effect<Session, Client.SessionsError, Scope.Scope> =>
  Effect.gen(function* () {
    const { timeout, token, url } = options
    const sessions = yield* Client.makeSessions({
      baseUrl: url,
      token,
      ...(timeout !== undefined && { timeout }),
      onStatus: yield* connectionNotes(options, display, ended)
    })
    yield* sessions.connect
    const id = Option.isSome(options.session) ? options.session.value : (yield* sessions.create(options.agentType)).id
    return { id, sessions }
  })

/** Shows the events of a session until the scope closes. Returns once the existing ones are shown, or after a timeout. */
export const follow = (
  { id, sessions }: Session,
  state: State,
  { draw, line, paint, record }: Display,
  ended: Deferred.Deferred<never, Fatal>
): Effect.Effect<void, Fatal, Scope.Scope> =>
  Effect.gen(function* () {
    const synced = yield* Deferred.make<void>()
    const onEvent = (event: typeof Event.Type) =>
      Effect.suspend(() => {
        const isShown = state.apply(event)
        return Effect.tap(isShown ? draw(screen => Screen.draw(screen, event, paint)) : Effect.void, () =>
          Effect.sync(() => state.notify())
        )
      })
    const onUpdate = (update: Client.SessionUpdate): Effect.Effect<void> => {
      switch (update.type) {
        case "event":
          return isKnown(update.event) ? onEvent(update.event) : Effect.void
        case "synced":
          return Effect.asVoid(Deferred.succeed(synced, undefined))
        case "reset":
          return line(paint.yellow(reset))
        case "trimmed":
          return update.after === 0 ? Effect.void : line(paint.yellow(trimmed))
      }
    }
    yield* sessions.subscribe(id).pipe(
      Stream.runForEach(update => Effect.zipRight(record(update), onUpdate(update))),
      Effect.onError(cause => Deferred.failCause(ended, cause)),
      Effect.forkScoped
    )
    yield* Effect.raceFirst(Effect.timeoutOption(Deferred.await(synced), catchUpTimeout), Deferred.await(ended))
  })
