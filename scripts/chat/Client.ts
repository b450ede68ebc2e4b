/**
 * A client of the gateway that survives its connections: it reconnects if that may help, and resumes the session's
 * history at its position.
 */
import { Deferred, Duration, Effect, Either, Exit, Option, Schedule, Schema, type Scope } from "effect"
import {
  type Answer,
  Answer as AnswerSchema,
  type AnswerTo,
  answerTypes,
  Envelope,
  ErrorAnswer,
  type Event,
  Event as EventSchema,
  encode,
  type RequestFrame,
  type RequestType
} from "../../src/Gateway/Protocol.ts"
import { Changes } from "../../src/Simulator/Changes.ts"
import * as Connection from "./Connection.ts"
import * as Place from "./Place.ts"

/** The gateway refused a request. */
export class RequestFailed extends Schema.TaggedError<RequestFailed>()("RequestFailed", {
  answer: ErrorAnswer
}) {
  override get message(): string {
    return this.answer.error.message
  }
}

/** The connection was lost before the answer arrived. It is unknown whether the request was carried out. */
export class AnswerLost extends Schema.TaggedError<AnswerLost>()("AnswerLost", {
  reason: Schema.String
}) {
  override get message(): string {
    return `The connection was lost before the answer came: ${this.reason}`
  }
}

/** What happens to the connection and to the position in the history. */
export type Notice =
  | { readonly is: "lost"; readonly reason: string }
  | { readonly is: "back" | "gap" | "reset" }
  /** An error that answers no request. */
  | { readonly is: "complaint"; readonly message: string }

/** Makes a request with the given id. */
export type Ask = <Frame extends RequestFrame>(
  request: (id: string) => Frame
) => Effect.Effect<AnswerTo<Frame["type"]>, RequestFailed | AnswerLost>

/** See {@link make}. */
export interface Client {
  /** Sends a request when connected, and waits for the answer. */
  readonly ask: Ask
  /** Follows a session from its first event on, instead of the previous session. */
  readonly follow: (sessionId: string) => Effect.Effect<void, RequestFailed>
  /** Waits until it is connected and has received all missed events. */
  readonly caughtUp: Effect.Effect<void>
  /** Fails when the client gives up reconnecting. */
  readonly ended: Effect.Effect<never, Connection.Disconnected>
}

/** Callbacks and time limits. */
export interface Options extends Connection.Target {
  readonly onEvent: (event: Event) => Effect.Effect<void>
  readonly onNotice: (notice: Notice) => Effect.Effect<void>
  /** The delays before attempts to reconnect. */
  readonly backOff?: Schedule.Schedule<unknown>
}

/** Exponential backoff with jitter up to 10 s. It is reset after 30 s of connection, and gives up after 10 minutes. */
const patience: Schedule.Schedule<unknown> = Schedule.exponential("200 millis").pipe(
  Schedule.modifyDelay((_, delay) => Duration.min(delay, Duration.seconds(10))),
  Schedule.jitteredWith({ min: 0.5, max: 1.5 }),
  Schedule.upTo("10 minutes"),
  Schedule.resetAfter("30 seconds")
)

/** The interval of pings to the gateway, and the time limit of their answers. */
const heartbeat = { every: "30 seconds", within: "10 seconds" } as const

/** The time limit for missed events. */
const catchUpWithin = "30 seconds"

const readAnswer = Schema.decodeUnknownOption(AnswerSchema)
const readEnvelope = Schema.decodeUnknownOption(Envelope)
const readEvent = Schema.decodeUnknownOption(EventSchema)
const readJson = Option.liftThrowable((text: string): unknown => JSON.parse(text))

type Respond = (answer: Either.Either<Answer, string>) => void

const isAnswerTo = <Type extends RequestType>(type: Type, answer: Answer): answer is AnswerTo<Type> =>
  answer.type === answerTypes[type]

class Correspondence {
  private readonly waiting = new Map<string, Respond>()
  private last = 0
  connection: Connection.Connection | undefined

  /** Sends a request. The answer is handled before any later frame. */
  ask<Frame extends RequestFrame>(
    request: (id: string) => Frame,
    onAnswer: (answer: AnswerTo<Frame["type"]>) => void = () => {}
  ): Effect.Effect<AnswerTo<Frame["type"]>, RequestFailed | AnswerLost> {
    return Effect.async(resume => {
      const id = String(++this.last)
      const { connection } = this
      if (connection === undefined) return resume(new AnswerLost({ reason: "there is no connection" }))
      const frame = request(id)
      const type: Frame["type"] = frame.type
      this.waiting.set(id, answer => {
        if (Either.isLeft(answer)) return resume(new AnswerLost({ reason: answer.left }))
        const { right } = answer
        if (right.type === "error") return resume(new RequestFailed({ answer: right }))
        if (!isAnswerTo(type, right)) return resume(new AnswerLost({ reason: `${right.type} answers ${type}` }))
        onAnswer(right)
        resume(Effect.succeed(right))
      })
      connection.send(encode(frame))
      return Effect.sync(() => this.waiting.delete(id))
    })
  }

  /** Passes an answer to the request that waits for it. Returns `false` if there is none. */
  answer(answer: Answer): boolean {
    const respond = answer.id === undefined ? undefined : this.waiting.get(answer.id)
    if (answer.id !== undefined) this.waiting.delete(answer.id)
    respond?.(Either.right(answer))
    return respond !== undefined
  }

  /** Fails all requests that wait for an answer. */
  breakOff(reason: string): void {
    this.connection = undefined
    const waiting = [...this.waiting.values()]
    this.waiting.clear()
    for (const respond of waiting) respond(Either.left(reason))
  }
}

/** Connects, and fails if the first connection fails. The client ends with the scope. */
export const make = (options: Options): Effect.Effect<Client, Connection.Disconnected, Scope.Scope> =>
  Effect.gen(function* () {
    const { onEvent, onNotice } = options
    const correspondence = new Correspondence()
    const changes = new Changes()
    const first = yield* Deferred.make<void, Connection.Disconnected>()
    const ended = yield* Deferred.make<never, Connection.Disconnected>()
    let place: Place.Place | undefined
    let isReady = false
    let notices: Array<Notice> = []

    const ready = changes.until(() => (isReady ? Option.some(undefined) : Option.none()))

    /** Sets the position with the answer, because the next events count from there. */
    const subscribe = ({ sessionId, seq, epoch }: Place.Place) =>
      correspondence.ask(
        id => ({ type: "subscribe", id, sessionId, ...(epoch === undefined ? {} : { afterSeq: seq, epoch }) }),
        answer => {
          if (place?.sessionId !== sessionId) return
          const [next, finding] = Place.resume(place, answer)
          place = next
          if (finding !== undefined) notices.push({ is: finding })
          changes.notify()
        }
      )

    /** A position after the end of the history means that the history was restored: it is followed from its first event. */
    const resume = (from: Place.Place) =>
      Effect.catchIf(
        subscribe(from),
        error => error._tag === "RequestFailed" && error.answer.error.code === "bad_request" && from.seq > 0,
        () =>
          Effect.suspend(() => {
            if (place?.sessionId !== from.sessionId) return Effect.void
            place = Place.start(from.sessionId)
            notices.push({ is: "reset" })
            return subscribe(place)
          })
      )

    const onFrame = (text: string): Effect.Effect<void> => {
      const frame = Option.getOrUndefined(readJson(text))
      const envelope = Option.getOrUndefined(readEnvelope(frame))
      if (envelope === undefined) {
        const answer = Option.getOrUndefined(readAnswer(frame))
        const isHeard = answer === undefined || correspondence.answer(answer)
        const said = notices
        notices = []
        if (!isHeard && answer.type === "error") said.push({ is: "complaint", message: answer.error.message })
        return Effect.forEach(said, onNotice, { discard: true })
      }
      const next = place === undefined ? undefined : Place.accept(place, envelope)
      if (next === undefined) return Effect.void
      place = next
      // Events of unknown types count too.
      const event = Option.getOrUndefined(readEvent(frame))
      return Effect.tap(event === undefined ? Effect.void : onEvent(event), () => Effect.sync(() => changes.notify()))
    }

    const greet = Effect.gen(function* () {
      if (place !== undefined) yield* resume(place)
      isReady = true
      changes.notify()
      if (!(yield* Deferred.succeed(first, undefined))) yield* onNotice({ is: "back" })
    })

    const lookAfter = Effect.timeoutFail(
      correspondence.ask(id => ({ type: "ping", id })),
      {
        duration: heartbeat.within,
        onTimeout: () => new Connection.Disconnected({ reason: "the gateway gives no sign of life", isFinal: false })
      }
    ).pipe(Effect.delay(heartbeat.every), Effect.forever)

    const explain = (error: RequestFailed | AnswerLost | Connection.Disconnected) => {
      if (error._tag === "Disconnected") return error
      // A session that cannot be followed has been deleted.
      const isFinal = error._tag === "RequestFailed" && !error.answer.error.retryable
      return new Connection.Disconnected({ reason: error.message, isFinal })
    }

    const once = Effect.gen(function* () {
      const connection = yield* Connection.open(options)
      correspondence.connection = connection
      const reading = Effect.forever(Effect.flatMap(connection.next, onFrame))
      return yield* Effect.raceFirst(reading, Effect.mapError(Effect.zipRight(greet, lookAfter), explain))
    }).pipe(
      Effect.tapError(error =>
        Effect.suspend(() => {
          const wasReady = isReady
          isReady = false
          correspondence.breakOff(error.reason)
          return wasReady && !error.isFinal ? onNotice({ is: "lost", reason: error.reason }) : Effect.void
        })
      ),
      Effect.scoped
    )

    const isWorthATry = (error: Connection.Disconnected) =>
      Effect.map(Deferred.isDone(first), wasConnected => wasConnected && !error.isFinal)

    yield* once.pipe(
      Effect.retry({ schedule: options.backOff ?? patience, while: isWorthATry }),
      Effect.onExit(exit =>
        Exit.isFailure(exit)
          ? Effect.zipRight(Deferred.failCause(first, exit.cause), Deferred.failCause(ended, exit.cause))
          : Effect.void
      ),
      Effect.forkScoped
    )
    yield* Deferred.await(first)

    const ask: Ask = request =>
      Effect.zipRight(
        ready,
        Effect.suspend(() => correspondence.ask(request))
      )

    return {
      ask,
      follow: sessionId =>
        Effect.suspend(() => {
          const from = Place.start(sessionId)
          place = from
          return Effect.zipRight(
            ready,
            Effect.suspend(() => subscribe(from))
          ).pipe(
            // A subscription ends with its connection.
            Effect.catchTag("AnswerLost", () => ready),
            Effect.asVoid
          )
        }),
      caughtUp: Effect.zipRight(
        ready,
        Effect.timeoutOption(
          changes.until(() =>
            isReady && (place === undefined || Place.isCaughtUp(place)) ? Option.some(undefined) : Option.none()
          ),
          catchUpWithin
        )
      ).pipe(Effect.asVoid),
      ended: Deferred.await(ended)
    }
  })
