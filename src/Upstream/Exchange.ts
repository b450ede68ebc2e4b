/**
 * One request to an upstream service and its answer, without retries: no redirects followed, the answer bounded,
 * everything that can go wrong an `UpstreamFailure`.
 */
import * as FetchHttpClient from "@effect/platform/FetchHttpClient"
import * as HttpClient from "@effect/platform/HttpClient"
import type { HttpClientError } from "@effect/platform/HttpClientError"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import type { HttpClientResponse } from "@effect/platform/HttpClientResponse"
import { Clock, Duration, Effect, Either, Option, ParseResult, type Redacted, Schema, type Scope, Stream } from "effect"
import { GrowingBytes } from "../GrowingBytes.ts"
import { parseWellFormed } from "../Json/Unicode.ts"
import { isUnreached, reasonOf, toldOf } from "./ConnectionReason.ts"
import { parseRetryAfter } from "./RetryPolicy.ts"
import { UpstreamFailure } from "./UpstreamFailure.ts"

/** Bytes of a failed answer's body that are looked at, for a reason. */
const errorBodyBytes = 16 * 1024

/** Characters of a reason given by an upstream that are passed on. */
const longestReason = 300

/** How long the rest of an answer is waited for whose status line has said what matters. */
const restLimit = Duration.seconds(1)

/** Requests to one upstream service. */
export interface Exchange {
  /** Sends a request and tells the status of its answer, whatever it is. Of the body nothing is waited for. */
  readonly status: (
    operation: string,
    request: HttpClientRequest.HttpClientRequest
  ) => Effect.Effect<number, UpstreamFailure>
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
  /** The same with a check of one's own in place of a schema, for answers that are too large for one. */
  readonly jsonBy: <A>(
    operation: string,
    request: HttpClientRequest.HttpClientRequest,
    read: Read<A>,
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
  return path.map(String).join(".")
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

/** Some values for each line of the longest list that is taken; what an answer holds beyond is not parsed. */
const shape = { levels: 1000, members: 250_000 }

const parseJson = (bytes: Uint8Array): Either.Either<unknown, string> =>
  Either.flatMap(Either.try({ try: () => utf8.decode(bytes), catch: () => "is not UTF-8" }), text =>
    parseWellFormed(text, shape)
  )

/** A value of an answer that is not as expected; `message` goes on after "The answer …" and tells none of its data. */
export class Unexpected extends Schema.TaggedError<Unexpected>()("Unexpected", {
  reason: Schema.Literal("malformed", "too_large"),
  message: Schema.String
}) {}

/** What an answer is taken for. */
export type Read<A> = (data: unknown) => Effect.Effect<A, Unexpected>

/** Where something of an answer is not as expected, as a way of member names and places. */
export const misshapen = (path: string): Unexpected =>
  new Unexpected({
    reason: "malformed",
    message: `has not the expected shape${path === "" ? "" : ` at ${path.slice(0, longestReason)}`}`
  })

/** Takes an answer by a schema. */
export const readBy = <A, I>(schema: Schema.Schema<A, I>): Read<A> => {
  const decode = Schema.decodeUnknown(schema)
  return data => Effect.mapError(decode(data), error => misshapen(placeOf(error)))
}

/** Requests to an upstream service by an `HttpClient`, which sends W3C `traceparent` along while tracing is on. */
export const make = (client: HttpClient.HttpClient, { service, baseUrl, apiKey }: Options): Exchange => {
  const scoped = HttpClient.withScope(client)

  /** A failure that names no address; the log has the error's own words. */
  const broken = (operation: string, error: unknown): Effect.Effect<never, UpstreamFailure> => {
    const reason = reasonOf(error)
    return Effect.zipRight(
      Effect.annotateLogs(Effect.logDebug(`No connection to the ${service}`), { operation, reason }),
      new UpstreamFailure({
        operation,
        reason: "connection",
        isUnreached: isUnreached(reason),
        message: toldOf(service, reason)
      })
    )
  }

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
          error._tag === "RequestError" && error.reason !== "Transport" ? Effect.die(error) : broken(operation, error)
        )
      )

  const bodyOf = (operation: string, response: HttpClientResponse): Stream.Stream<Uint8Array, UpstreamFailure> =>
    Stream.catchAll(response.stream, error =>
      error._tag === "ResponseError" && error.reason === "EmptyBody"
        ? Stream.empty
        : Stream.fromEffect(broken(operation, error))
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

  /** Reads a body that may hold something of interest, or not: as far as it comes within a second. */
  const glance = (operation: string, response: HttpClientResponse): Effect.Effect<Buffer> =>
    Effect.timeoutTo(
      Effect.orElseSucceed(read(operation, response, errorBodyBytes), () => Buffer.alloc(0)),
      { duration: restLimit, onSuccess: body => body, onTimeout: () => Buffer.alloc(0) }
    )

  /**
   * What is wrong with an answer other than 2xx. What a 4xx says is meant for whoever asked; what other failures say is
   * the service's own affair, and may name addresses: it is for the log.
   */
  const statusFailure = (operation: string, response: HttpClientResponse) =>
    Effect.gen(function* () {
      const reason = reasonIn(yield* glance(operation, response))
      const isForClient = response.status >= 400 && response.status < 500
      if (!isForClient && reason !== "") {
        yield* Effect.annotateLogs(Effect.logDebug(`The ${service} answered ${response.status}${reason}`), {
          operation
        })
      }
      const retryAfterMillis = parseRetryAfter(response.headers["retry-after"], yield* Clock.currentTimeMillis)
      return yield* new UpstreamFailure({
        operation,
        reason: "status",
        statusCode: response.status,
        ...(retryAfterMillis === undefined ? {} : { retryAfterMillis }),
        message: `The ${service} answered ${response.status} to ${operation}${isForClient ? reason : ""}`
      })
    })

  const status: Exchange["status"] = (operation, request) =>
    Effect.scoped(Effect.map(execute(operation, request), response => response.status))

  /** Succeeds with the head of a 2xx answer. The scope's end gives the request up. */
  const open = (operation: string, request: HttpClientRequest.HttpClientRequest) =>
    Effect.flatMap(execute(operation, request), response =>
      response.status >= 200 && response.status < 300 ? Effect.succeed(response) : statusFailure(operation, response)
    )

  const openStream: Exchange["openStream"] = (operation, request) =>
    Effect.map(open(operation, request), response => ({
      headers: response.headers,
      body: bodyOf(operation, response)
    }))

  const jsonBy: Exchange["jsonBy"] = (operation, request, expect, maxBytes) =>
    Effect.gen(function* () {
      const response = yield* open(operation, HttpClientRequest.acceptJson(request))
      const body = yield* read(operation, response, maxBytes)
      const data = yield* Either.mapLeft(parseJson(body), problem => malformed(operation, problem))
      return yield* Effect.mapError(
        expect(data),
        ({ reason, message }) =>
          new UpstreamFailure({ operation, reason, message: `The ${service}'s answer to ${operation} ${message}` })
      )
    }).pipe(Effect.scoped)

  const json: Exchange["json"] = (operation, request, schema, maxBytes) =>
    jsonBy(operation, request, readBy(schema), maxBytes)

  const done: Exchange["done"] = (operation, request) =>
    Effect.flatMap(open(operation, request), response => glance(operation, response)).pipe(Effect.scoped)

  return { status, openStream, json, jsonBy, done }
}
