import * as Headers from "@effect/platform/Headers"
import * as HttpClient from "@effect/platform/HttpClient"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import type * as HttpClientResponse from "@effect/platform/HttpClientResponse"
import { Clock, Duration, Effect, Option, type Redacted, Schedule, Schema } from "effect"

/** The service refused a batch; a retry is useless. */
export class Refused extends Schema.TaggedError<Refused>()("Refused", {
  status: Schema.Int,
  reason: Schema.String
}) {
  override get message(): string {
    return `The service answers ${this.status}: ${this.reason}`
  }
}

/** The service is unreachable, overloaded or has no store. */
export class Away extends Schema.TaggedError<Away>()("Away", {
  reason: Schema.String,
  /** The delay that the service asks for, if any. */
  retryAfter: Schema.OptionFromSelf(Schema.DurationFromSelf)
}) {
  override get message(): string {
    return `The service is away: ${this.reason}`
  }
}

/** The address of the service, and time limits. */
export interface Options {
  /** The base address, without a slash at the end. */
  readonly url: string
  readonly key: Redacted.Redacted
  /** How long a batch is retried while the service is unavailable; a minute by default. */
  readonly giveUpAfter?: Duration.DurationInput
  /** Called for each failed attempt that may be retried. */
  readonly onAway?: (error: Away) => Effect.Effect<void>
}

/** Transient statuses: too many requests, a failing proxy, the store is unavailable. */
const passing = new Set([429, 502, 503, 504])

/** The time limit of an answer. */
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

/** Exponential backoff up to 5 s, or the delay that the service asks for, until the time limit. */
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

/** Sends batches of sets. Returns the versions in the order of the operations. */
export type BatchClient = (body: string) => Effect.Effect<ReadonlyArray<{ readonly version: number }>, Refused | Away>

/**
 * A client that retries batches while the service is unavailable. If the answer of a committed batch is lost, the retry
 * sets the same values again and increments their versions.
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
