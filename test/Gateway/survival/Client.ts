import { Deferred, Effect, Option, Schedule, Schema, type Scope } from "effect"
import { WebSocket } from "ws"
import type { Answer, AnswerOf, Event, RequestFrame } from "../../../src/Gateway/Protocol.ts"
import { turnEnds } from "../../../src/Gateway/Protocol.ts"
import { Changes } from "../../../src/Simulator/Changes.ts"
import type { Witness } from "./Witness.ts"

/** The connection ended while something was awaited. */
export class Gone extends Schema.TaggedError<Gone>()("Gone", { reason: Schema.String }) {
  override get message(): string {
    return `The connection is gone: ${this.reason}`
  }
}

/** The gateway answered with an error. */
export class Refused extends Schema.TaggedError<Refused>()("Refused", {
  answer: Schema.String,
  /** Whether the same request may succeed later. */
  retryable: Schema.Boolean
}) {
  override get message(): string {
    return `A request was answered ${this.answer}`
  }
}

/** Sends a request again as long as the gateway answers that it may succeed later. */
export const persist = <A>(request: Effect.Effect<A, Gone | Refused>): Effect.Effect<A, Gone | Refused> =>
  Effect.retry(request, {
    schedule: Schedule.spaced("100 millis"),
    while: error => error._tag === "Refused" && error.retryable
  })

/** See {@link connect}. */
export interface Client {
  /** Sends a request that must succeed, and waits for its answer. */
  readonly get: <Type extends Answer["type"]>(
    type: Type,
    request: (id: string) => RequestFrame
  ) => Effect.Effect<AnswerOf<Type>, Gone | Refused>
  /** Subscribes from the last event that the witness has, and waits until all missed events have come. */
  readonly follow: (sessionId: string) => Effect.Effect<void, Gone | Refused>
  /** Waits for the event that ends a turn. */
  readonly ended: (turnId: string) => Effect.Effect<Event["type"], Gone>
}

const ends: ReadonlySet<string> = new Set(turnEnds)

const isAnswer = <Type extends Answer["type"]>(type: Type, answer: Answer): answer is AnswerOf<Type> =>
  answer.type === type

/** Connects until the scope closes. The witness records each event, and any gap or duplicate in a session. */
export const connect = (
  url: string,
  token: string,
  witness: Witness,
  onFrame: () => void = () => {}
): Effect.Effect<Client, Gone, Scope.Scope> =>
  Effect.gen(function* () {
    const changes = new Changes()
    const last = new Map<string, number>()
    const ended = new Map<string, Event["type"]>()
    const waiting = new Map<string, (answer: Answer) => void>()
    const opened = yield* Deferred.make<void, Gone>()
    let goneFor: string | undefined
    let lastId = 0

    const onEvent = (event: Event, text: string) => {
      const { seq, sessionId, type } = event
      const before = last.get(sessionId)
      if (before !== undefined && seq !== before + 1) {
        witness.contradictions.push(`${sessionId}: ${seq} came behind ${before}`)
      }
      last.set(sessionId, seq)
      witness.see(event, text)
      if (ends.has(type) && "turnId" in event && event.turnId !== undefined) ended.set(event.turnId, type)
      changes.notify()
    }

    const socket = yield* Effect.acquireRelease(
      Effect.sync(() => {
        const socket = new WebSocket(url, { headers: { authorization: `Bearer ${token}` } })
        socket.on("open", () => Deferred.unsafeDone(opened, Effect.void))
        let reason = ""
        socket.on("error", error => {
          reason = error.message
          socket.terminate()
        })
        socket.on("close", code => {
          goneFor = `${code} ${reason}`
          Deferred.unsafeDone(opened, new Gone({ reason: goneFor }))
          changes.notify()
        })
        socket.on("message", data => {
          const text = String(data)
          const frame: Answer | Event = JSON.parse(text)
          if ("traceId" in frame) onEvent(frame, text)
          else if ("id" in frame && frame.id !== undefined) {
            waiting.get(frame.id)?.(frame)
            waiting.delete(frame.id)
          }
          onFrame()
        })
        return socket
      }),
      socket => Effect.sync(() => socket.terminate())
    )
    yield* Deferred.await(opened)

    const orGone = <A, E>(effect: Effect.Effect<A, E>) =>
      Effect.raceFirst(
        effect,
        Effect.flatMap(
          changes.until(() => Option.fromNullable(goneFor)),
          reason => new Gone({ reason })
        )
      )

    const ask = <Type extends Answer["type"]>(
      type: Type,
      request: (id: string) => RequestFrame,
      onAnswer: (answer: AnswerOf<Type>) => void
    ) =>
      orGone(
        Effect.async<AnswerOf<Type>, Refused>(resume => {
          const frame = request(String(++lastId))
          waiting.set(frame.id, answer => {
            if (!isAnswer(type, answer)) {
              const retryable = answer.type === "error" && answer.error.retryable
              return resume(new Refused({ answer: JSON.stringify(answer), retryable }))
            }
            onAnswer(answer)
            resume(Effect.succeed(answer))
          })
          if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify(frame))
        })
      )

    return {
      get: (type, request) => ask(type, request, () => {}),
      follow: sessionId =>
        Effect.gen(function* () {
          const place = witness.place(sessionId)
          const { headSeq } = yield* ask(
            "subscribed",
            id => ({ type: "subscribe", id, sessionId, ...place }),
            ({ epoch, recovered }) => {
              // The first event is the one after this position.
              last.set(sessionId, place?.afterSeq ?? 0)
              witness.subscribed(sessionId, epoch, recovered)
            }
          )
          yield* orGone(
            changes.until(() => ((last.get(sessionId) ?? 0) >= headSeq ? Option.some(undefined) : Option.none()))
          )
        }),
      ended: turnId => orGone(changes.until(() => Option.fromNullable(ended.get(turnId))))
    }
  })
