/**
 * A client of the gateway that outlives its connections: it connects again where that may help, and goes on in the
 * session's history where it was.
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

/** The connection was lost before the answer came: whether the request was carried out is not known. */
export class AnswerLost extends Schema.TaggedError<AnswerLost>()("AnswerLost", {
  reason: Schema.String
}) {
  override get message(): string {
    return `The connection was lost before the answer came: ${this.reason}`
  }
}

/** What happens to the connection and the place in the history. */
export type Notice =
  | { readonly is: "lost"; readonly reason: string }
  | { readonly is: "back" | "gap" | "reset" }
  /** An error that answers no request. */
  | { readonly is: "complaint"; readonly message: string }

/** Makes a request of the id that it is given. */
export type Ask = <Frame extends RequestFrame>(
  request: (id: string) => Frame
) => Effect.Effect<AnswerTo<Frame["type"]>, RequestFailed | AnswerLost>

/** See {@link make}. */
export interface Client {
  /** Asks once connected, and waits for the answer. */
  readonly ask: Ask
  /** Follows a session from its first event on, in place of the one before. */
  readonly follow: (sessionId: string) => Effect.Effect<void, RequestFailed>
  /** Waits until it is connected and has all that happened until it was. */
  readonly caughtUp: Effect.Effect<void>
  /** Fails when there is no use in connecting again. */
  readonly ended: Effect.Effect<never, Connection.Disconnected>
}

/** How to be told, and how patient to be. */
export interface Options extends Connection.Target {
  readonly onEvent: (event: Event) => Effect.Effect<void>
  readonly onNotice: (notice: Notice) => Effect.Effect<void>
  /** The waits before the tries to connect again. */
  readonly backOff?: Schedule.Schedule<unknown>
}

/** Ever longer, up to 10 s and never as long as others, from anew after 30 s of peace; given up after 10 minutes. */
const patience: Schedule.Schedule<unknown> = Schedule.exponential("200 millis").pipe(
  Schedule.modifyDelay((_, delay) => Duration.min(delay, Duration.seconds(10))),
  Schedule.jitteredWith({ min: 0.5, max: 1.5 }),
  Schedule.upTo("10 minutes"),
  Schedule.resetAfter("30 seconds")
)

/** How often the client looks whether the gateway is still there, and how long it waits for the answer. */
const heartbeat = { every: "30 seconds", within: "10 seconds" } as const

/** How long missed events may take to come before they are no longer waited for. */
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

  /** Asks, and has the answer handed over before any frame behind it is looked at. */
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

  /** Gives an answer to whoever waits for it; `false` where nobody does. */
  answer(answer: Answer): boolean {
    const respond = answer.id === undefined ? undefined : this.waiting.get(answer.id)
    if (answer.id !== undefined) this.waiting.delete(answer.id)
    respond?.(Either.right(answer))
    return respond !== undefined
  }

  /** Nobody will be answered any more. */
  breakOff(reason: string): void {
    this.connection = undefined
    const waiting = [...this.waiting.values()]
    this.waiting.clear()
    for (const respond of waiting) respond(Either.left(reason))
  }
}

/** Connects, and fails where the first connection cannot be made. The scope ends the client. */
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

    /** The place is moved as soon as the answer is there: the events that follow it count from there. */
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

    /** A place that the history has not come to is of one that was put back: it is followed from its first event on. */
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
      // Events of types that this client does not know count all the same.
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
      // A session that cannot be followed any more was deleted.
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
            // Whoever connects again subscribes again.
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
