import * as Headers from "@effect/platform/Headers"
import * as HttpClient from "@effect/platform/HttpClient"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import type * as HttpClientResponse from "@effect/platform/HttpClientResponse"
import { Clock, Duration, Effect, Option, type Redacted, Schedule, Schema } from "effect"

/** The service will not take a batch, however often it is sent. */
export class Refused extends Schema.TaggedError<Refused>()("Refused", {
  status: Schema.Int,
  reason: Schema.String
}) {
  override get message(): string {
    return `The service answers ${this.status}: ${this.reason}`
  }
}

/** The service cannot be reached, or has no time or no store at the moment. */
export class Away extends Schema.TaggedError<Away>()("Away", {
  reason: Schema.String,
  /** How long the service wants to be left alone, where it says so. */
  retryAfter: Schema.OptionFromSelf(Schema.DurationFromSelf)
}) {
  override get message(): string {
    return `The service is away: ${this.reason}`
  }
}

/** Where the service is, and how patient to be with it. */
export interface Options {
  /** The base address, without a slash at the end. */
  readonly url: string
  readonly key: Redacted.Redacted
  /** How long a batch is tried again while the service is away; a minute by default. */
  readonly giveUpAfter?: Duration.DurationInput
  /** Told of each attempt that failed and may be made again. */
  readonly onAway?: (error: Away) => Effect.Effect<void>
}

/** Answers that pass by themselves: too many requests, a gateway before the service, the store away. */
const passing = new Set([429, 502, 503, 504])

/** An answer that takes longer than this counts as lost. */
const answerWithin = Duration.seconds(30)

const ErrorBody = Schema.parseJson(Schema.Struct({ error: Schema.String }))
const SuccessBody = Schema.parseJson(
  Schema.Struct({ ok: Schema.Literal(true), results: Schema.Array(Schema.Struct({ version: Schema.Int })) })
)

/** `Retry-After` as a number of seconds or as a date (RFC 9110, 10.2.3). */
export const parseRetryAfter = (text: string, now: number): Option.Option<Duration.Duration> => {
  if (/^\d+$/.test(text)) return Option.some(Duration.seconds(Number(text)))
  const date = Date.parse(text)
  return Number.isNaN(date) ? Option.none() : Option.some(Duration.millis(Math.max(0, date - now)))
}

const problemOf = (response: HttpClientResponse.HttpClientResponse, body: string) =>
  Effect.gen(function* () {
    const { status, headers } = response
    const reason = Option.match(Schema.decodeUnknownOption(ErrorBody)(body), {
      onNone: () => `no error text (${JSON.stringify(body.slice(0, 80))})`,
      onSome: ({ error }) => error
    })
    if (!passing.has(status)) return yield* new Refused({ status, reason })
    const now = yield* Clock.currentTimeMillis
    const retryAfter = Option.flatMap(Headers.get(headers, "retry-after"), text => parseRetryAfter(text, now))
    return yield* new Away({ reason: `${status} ${reason}`, retryAfter })
  })

const lost = (cause: unknown): string => {
  const inner = cause instanceof Error && cause.cause instanceof Error ? cause.cause : cause
  return inner instanceof Error ? inner.message || inner.name : String(inner)
}

/** Ever longer pauses of up to 5 s, or as long as the service asks for, until patience ends. */
const comesBack = (giveUpAfter: Duration.DurationInput) =>
  Schedule.exponential("100 millis").pipe(
    Schedule.jittered,
    Schedule.modifyDelay((_, delay) => Duration.min(delay, Duration.seconds(5))),
    Schedule.intersect(Schedule.identity<Refused | Away>()),
    Schedule.modifyDelay(([, error], delay) =>
      error._tag === "Away"
        ? Duration.max(
            delay,
            Option.getOrElse(error.retryAfter, () => Duration.zero)
          )
        : delay
    ),
    Schedule.upTo(giveUpAfter)
  )

/** Sends batches of which every operation is a set; the answer is the versions, in order of the operations. */
export type BatchClient = (body: string) => Effect.Effect<ReadonlyArray<{ readonly version: number }>, Refused | Away>

/**
 * A client that sends a batch again while the service is away. An answer that got lost may be that of a batch which
 * was written: sent again, it sets the same values once more, and its entries are a version further.
 */
export const make = (options: Options): Effect.Effect<BatchClient, never, HttpClient.HttpClient> =>
  Effect.map(HttpClient.HttpClient, client => {
    const request = HttpClientRequest.post(`${options.url}/api/v1/batch`).pipe(
      HttpClientRequest.bearerToken(options.key)
    )
    const once = (body: string) =>
      Effect.gen(function* () {
        const response = yield* client.execute(HttpClientRequest.bodyText(request, body, "application/json"))
        return [response, yield* response.text] as const
      }).pipe(
        Effect.mapError(error => new Away({ reason: lost(error), retryAfter: Option.none() })),
        Effect.timeoutFail({
          duration: answerWithin,
          onTimeout: () =>
            new Away({ reason: `no answer within ${Duration.format(answerWithin)}`, retryAfter: Option.none() })
        }),
        Effect.flatMap(([response, text]) =>
          response.status === 200
            ? Effect.mapBoth(Schema.decodeUnknown(SuccessBody)(text), {
                onSuccess: ({ results }) => results,
                onFailure: () =>
                  new Refused({ status: 200, reason: `no result of a batch (${JSON.stringify(text.slice(0, 80))})` })
              })
            : problemOf(response, text)
        )
      )
    const retries = comesBack(options.giveUpAfter ?? "1 minute")
    const { onAway = () => Effect.void } = options
    return body =>
      once(body).pipe(
        Effect.tapErrorTag("Away", onAway),
        Effect.retry({ schedule: retries, while: error => error._tag === "Away" })
      )
  })
