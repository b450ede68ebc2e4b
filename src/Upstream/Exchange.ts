/**
 * One request to an upstream service and its answer, without retries: no redirects followed, the answer bounded,
 * everything that can go wrong an `UpstreamFailure`.
 */
import * as FetchHttpClient from "@effect/platform/FetchHttpClient"
import * as HttpClient from "@effect/platform/HttpClient"
import type { HttpClientError } from "@effect/platform/HttpClientError"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import type { HttpClientResponse } from "@effect/platform/HttpClientResponse"
import { Clock, Effect, Either, Option, ParseResult, type Redacted, Schema, type Scope, Stream } from "effect"
import { GrowingBytes } from "../GrowingBytes.ts"
import { excessOfLarge } from "../JsonShape.ts"
import { parseRetryAfter } from "./RetryPolicy.ts"
import { UpstreamFailure } from "./UpstreamFailure.ts"

/** Bytes of a failed answer's body that are looked at, for a reason. */
const errorBodyBytes = 16 * 1024

/** Characters of a reason given by an upstream that are passed on. */
const longestReason = 300

/** Requests to one upstream service. */
export interface Exchange {
  /** Sends a request; succeeds with the head of a 2xx answer. The scope's end gives the request up. */
  readonly open: (
    operation: string,
    request: HttpClientRequest.HttpClientRequest
  ) => Effect.Effect<HttpClientResponse, UpstreamFailure, Scope.Scope>
  /** Sends a request; succeeds with the head of a 2xx answer and a body to be read bit by bit, within the scope. */
  readonly openStream: (
    operation: string,
    request: HttpClientRequest.HttpClientRequest
  ) => Effect.Effect<
    { readonly headers: Readonly<Record<string, string>>; readonly body: Stream.Stream<Uint8Array, UpstreamFailure> },
    UpstreamFailure,
    Scope.Scope
  >
  /** Sends a request and takes a JSON answer of at most `maxBytes`. */
  readonly json: <A, I>(
    operation: string,
    request: HttpClientRequest.HttpClientRequest,
    schema: Schema.Schema<A, I>,
    maxBytes: number
  ) => Effect.Effect<A, UpstreamFailure>
  /** Sends a request whose 2xx answer says all by itself. */
  readonly done: (
    operation: string,
    request: HttpClientRequest.HttpClientRequest
  ) => Effect.Effect<void, UpstreamFailure>
}

/** Where requests go, and as whom. */
export interface Options {
  /** Name of the service for people, as in "… answered 503". */
  readonly service: string
  readonly baseUrl: string
  readonly apiKey: Option.Option<Redacted.Redacted>
}

/** The innermost words of an error: Node's clients wrap what happened several times. */
export const reasonOf = (error: unknown, depth = 0): string => {
  if (typeof error !== "object" || error === null) return String(error)
  if ("cause" in error && error.cause !== undefined && depth < 5) return reasonOf(error.cause, depth + 1)
  const code = "code" in error && typeof error.code === "string" ? error.code : ""
  const message = "message" in error && typeof error.message === "string" ? error.message : ""
  return (message.includes(code) ? message : `${code} ${message}`).trim() || "no reason given"
}

const ErrorBody = Schema.parseJson(
  Schema.Union(Schema.Struct({ error: Schema.NonEmptyString }), Schema.Struct({ message: Schema.NonEmptyString }))
)

const reasonIn = (body: Uint8Array): string =>
  Option.match(Schema.decodeUnknownOption(ErrorBody)(new TextDecoder().decode(body)), {
    onNone: () => "",
    onSome: found => `: ${("error" in found ? found.error : found.message).slice(0, longestReason)}`
  })

/** Where data differs from a schema; never the data itself, which may be secret. */
const placeOf = (error: ParseResult.ParseError): string => {
  const path = ParseResult.ArrayFormatter.formatErrorSync(error)[0]?.path ?? []
  return path.length === 0 ? "" : ` at ${path.map(String).join(".").slice(0, longestReason)}`
}

/** Follows no redirects: fetch does unless told otherwise, the other clients do not. */
const unredirected = <A, E, R>(request: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.flatMap(Effect.serviceOption(FetchHttpClient.RequestInit), init =>
    Effect.provideService(request, FetchHttpClient.RequestInit, {
      ...Option.getOrElse(init, () => ({})),
      redirect: "manual"
    })
  )

const utf8 = new TextDecoder("utf-8", { fatal: true })

/** Four values for each line of the longest list that is asked for; what an answer holds beyond is not parsed. */
const shape = { levels: 1000, members: 1_000_000 }

const parseJson = (bytes: Uint8Array): Either.Either<unknown, string> => {
  let text: string
  try {
    text = utf8.decode(bytes)
  } catch {
    return Either.left("is not UTF-8")
  }
  const problem = excessOfLarge(text, shape)
  return problem === undefined
    ? Either.try({ try: (): unknown => JSON.parse(text), catch: () => "is not JSON" })
    : Either.left(problem)
}

/** Requests to an upstream service by an `HttpClient`, which sends W3C `traceparent` along while tracing is on. */
export const make = (client: HttpClient.HttpClient, { service, baseUrl, apiKey }: Options): Exchange => {
  const scoped = HttpClient.withScope(client)

  const broken =
    (operation: string) =>
    (error: unknown): UpstreamFailure =>
      new UpstreamFailure({
        operation,
        reason: "connection",
        message: `No connection to the ${service}: ${reasonOf(error)}`
      })

  const tooLarge = (operation: string, maxBytes: number): UpstreamFailure =>
    new UpstreamFailure({
      operation,
      reason: "too_large",
      message: `The ${service}'s answer to ${operation} is longer than ${maxBytes} bytes`
    })

  const malformed = (operation: string, problem: string): UpstreamFailure =>
    new UpstreamFailure({
      operation,
      reason: "malformed",
      message: `The ${service}'s answer to ${operation} ${problem}`
    })

  const execute = (operation: string, request: HttpClientRequest.HttpClientRequest) =>
    scoped
      .execute(
        request.pipe(
          HttpClientRequest.prependUrl(baseUrl),
          Option.isSome(apiKey) ? HttpClientRequest.bearerToken(apiKey.value) : self => self
        )
      )
      .pipe(
        unredirected,
        Effect.catchAll((error: HttpClientError) =>
          error._tag === "RequestError" && error.reason !== "Transport"
            ? Effect.die(error)
            : Effect.fail(broken(operation)(error))
        )
      )

  const bodyOf = (operation: string, response: HttpClientResponse): Stream.Stream<Uint8Array, UpstreamFailure> =>
    Stream.catchAll(response.stream, error =>
      error._tag === "ResponseError" && error.reason === "EmptyBody"
        ? Stream.empty
        : Stream.fail(broken(operation)(error))
    )

  const read = (operation: string, response: HttpClientResponse, maxBytes: number) =>
    Effect.suspend((): Effect.Effect<Buffer, UpstreamFailure> => {
      if (Number(response.headers["content-length"] ?? 0) > maxBytes) return Effect.fail(tooLarge(operation, maxBytes))
      const bytes = new GrowingBytes(maxBytes)
      return bodyOf(operation, response).pipe(
        Stream.runForEach(chunk => {
          if (bytes.length + chunk.length > maxBytes) return Effect.fail(tooLarge(operation, maxBytes))
          bytes.add(chunk)
          return Effect.void
        }),
        Effect.map(() => bytes.take())
      )
    })

  /** What is wrong with an answer other than 2xx; its body is read as far as it tells, and never held against it. */
  const statusFailure = (operation: string, response: HttpClientResponse) =>
    Effect.gen(function* () {
      const body = yield* Effect.orElseSucceed(read(operation, response, errorBodyBytes), () => Buffer.alloc(0))
      const retryAfterMillis = parseRetryAfter(response.headers["retry-after"], yield* Clock.currentTimeMillis)
      return yield* new UpstreamFailure({
        operation,
        reason: "status",
        statusCode: response.status,
        ...(retryAfterMillis === undefined ? {} : { retryAfterMillis }),
        message: `The ${service} answered ${response.status} to ${operation}${reasonIn(body)}`
      })
    })

  const open: Exchange["open"] = (operation, request) =>
    Effect.flatMap(execute(operation, request), response =>
      response.status >= 200 && response.status < 300 ? Effect.succeed(response) : statusFailure(operation, response)
    )

  const openStream: Exchange["openStream"] = (operation, request) =>
    Effect.map(open(operation, request), response => ({
      headers: response.headers,
      body: bodyOf(operation, response)
    }))

  const json: Exchange["json"] = (operation, request, schema, maxBytes) =>
    Effect.gen(function* () {
      const response = yield* open(operation, HttpClientRequest.acceptJson(request))
      const body = yield* read(operation, response, maxBytes)
      const data = yield* Either.mapLeft(parseJson(body), problem => malformed(operation, problem))
      return yield* Effect.mapError(Schema.decodeUnknown(schema)(data), error =>
        malformed(operation, `has not the expected shape${placeOf(error)}`)
      )
    }).pipe(Effect.scoped)

  const done: Exchange["done"] = (operation, request) =>
    Effect.flatMap(open(operation, request), response => Effect.ignore(read(operation, response, errorBodyBytes))).pipe(
      Effect.scoped
    )

  return { open, openStream, json, done }
}
