/**
 * Single requests to an upstream service, without retries. Redirects are not followed, the size of an answer is limited,
 * and every failure is an `UpstreamFailure`.
 */
import * as FetchHttpClient from "@effect/platform/FetchHttpClient"
import * as HttpClient from "@effect/platform/HttpClient"
import type { HttpClientError } from "@effect/platform/HttpClientError"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import type { HttpClientResponse } from "@effect/platform/HttpClientResponse"
import { Duration, Effect, Either, Option, ParseResult, type Redacted, Schema, type Scope, Stream } from "effect"
import { parseWellFormed } from "../base/Json/Parsing.ts"
import { GrowingBytes } from "../base/UnfinishedMessage.ts"
import { connectionFailure, failWithStatus, reasonOf, UpstreamFailure } from "./Resilience/UpstreamFailure.ts"

/** Bytes of a failed answer's body that are searched for a reason. */
const errorBodyBytes = 16 * 1024

/** Maximum characters of an upstream's reason in a message. */
const longestReason = 300

/** How long to wait for a body whose content is optional. */
const optionalBodyTimeout = Duration.seconds(1)

/** The address and credential of an upstream service. */
export interface Options {
  /** Name of the service in messages, as in "… answered 503". */
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

/** The path at which data differs from a schema, without the data itself, which may be secret. */
const placeOf = (error: ParseResult.ParseError): string => {
  const path = ParseResult.ArrayFormatter.formatErrorSync(error)[0]?.path ?? []
  return path.map(String).join(".")
}

/** Follows no redirects, as fetch does by default. */
const unredirected = <A, E, R>(request: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.flatMap(Effect.serviceOption(FetchHttpClient.RequestInit), init =>
    Effect.provideService(request, FetchHttpClient.RequestInit, {
      ...Option.getOrElse(init, () => ({})),
      redirect: "manual"
    })
  )

const utf8 = new TextDecoder("utf-8", { fatal: true })

/** The limit allows some values for each entry of the longest list. An answer with more is not parsed. */
const shape = { levels: 1000, members: 250_000 }

const parseJson = (bytes: Uint8Array): Either.Either<unknown, string> =>
  Either.flatMap(Either.try({ try: () => utf8.decode(bytes), catch: () => "is not UTF-8" }), text =>
    parseWellFormed(text, shape)
  )

/** An answer is not as expected. `message` continues "The answer …", and contains none of the data. */
export class Unexpected extends Schema.TaggedError<Unexpected>()("Unexpected", {
  reason: Schema.Literal("malformed", "too_large"),
  message: Schema.String
}) {}

/** Decodes an answer. */
export type Read<A> = (data: unknown) => Effect.Effect<A, Unexpected>

/** The failure of an answer with an unexpected value at a path of names and indexes. */
export const unexpectedShape = (path: string): Unexpected =>
  new Unexpected({
    reason: "malformed",
    message: `does not have the expected shape${path === "" ? "" : ` at ${path.slice(0, longestReason)}`}`
  })

/** Decodes an answer by a schema. */
export const readBy = <A, I>(schema: Schema.Schema<A, I>): Read<A> => {
  const decode = Schema.decodeUnknown(schema)
  return data => Effect.mapError(decode(data), error => unexpectedShape(placeOf(error)))
}

type Request = HttpClientRequest.HttpClientRequest

/** Requests to one upstream service. */
export class UpstreamHttp {
  private readonly scoped: HttpClient.HttpClient.With<HttpClientError, Scope.Scope>

  constructor(
    client: HttpClient.HttpClient,
    private readonly options: Options
  ) {
    this.scoped = HttpClient.withScope(client)
  }

  /** Sends a request and returns the status of its answer. The body is not read. */
  status(operation: string, request: Request): Effect.Effect<number, UpstreamFailure> {
    return Effect.scoped(Effect.map(this.execute(operation, request), response => response.status))
  }

  /**
   * Sends a request; succeeds with the headers of a 2xx answer, its content type without parameters, and a body to be
   * streamed within the scope.
   */
  openStream(operation: string, request: Request) {
    return Effect.map(this.open(operation, request), response => ({
      headers: response.headers,
      type: response.headers["content-type"]?.split(";", 1)[0]?.trim().toLowerCase(),
      body: this.bodyOf(operation, response)
    }))
  }

  /** Sends a request and reads a JSON answer of at most `maxBytes`. */
  json<A>(operation: string, request: Request, read: Read<A>, maxBytes: number): Effect.Effect<A, UpstreamFailure> {
    return Effect.gen(this, function* () {
      const response = yield* this.open(operation, HttpClientRequest.acceptJson(request))
      const body = yield* this.readBytes(operation, response, maxBytes)
      const data = yield* Either.mapLeft(parseJson(body), problem => this.unexpected(operation, "malformed", problem))
      return yield* Effect.mapError(read(data), ({ reason, message }) => this.unexpected(operation, reason, message))
    }).pipe(Effect.scoped)
  }

  /** Sends a request and ignores the body of a 2xx answer. */
  done(operation: string, request: Request): Effect.Effect<void, UpstreamFailure> {
    return Effect.flatMap(this.open(operation, request), response => this.readBriefly(operation, response)).pipe(
      Effect.scoped
    )
  }

  /** The error's own message is only logged. */
  private broken(operation: string, error: unknown): Effect.Effect<never, UpstreamFailure> {
    const { service } = this.options
    const reason = reasonOf(error)
    return Effect.zipRight(
      Effect.annotateLogs(Effect.logDebug(`No connection to the ${service}`), { operation, reason }),
      connectionFailure(operation, service, reason)
    )
  }

  private unexpected(operation: string, reason: Unexpected["reason"], message: string): UpstreamFailure {
    const text = `The ${this.options.service}'s answer to ${operation} ${message}`
    return new UpstreamFailure({ operation, reason, message: text })
  }

  private execute(operation: string, request: Request) {
    const { apiKey, baseUrl } = this.options
    const addressed = HttpClientRequest.prependUrl(request, baseUrl)
    const authorized = Option.isSome(apiKey) ? HttpClientRequest.bearerToken(addressed, apiKey.value) : addressed
    return this.scoped.execute(authorized).pipe(
      unredirected,
      Effect.catchAll((error: HttpClientError) =>
        error._tag === "RequestError" && error.reason !== "Transport"
          ? Effect.die(error)
          : this.broken(operation, error)
      )
    )
  }

  /** Succeeds with a 2xx answer. The end of the scope aborts the request. */
  private open(operation: string, request: Request) {
    return Effect.flatMap(this.execute(operation, request), response =>
      response.status >= 200 && response.status < 300
        ? Effect.succeed(response)
        : this.statusFailure(operation, response)
    )
  }

  private bodyOf(operation: string, response: HttpClientResponse): Stream.Stream<Uint8Array, UpstreamFailure> {
    return Stream.catchAll(response.stream, error =>
      error._tag === "ResponseError" && error.reason === "EmptyBody"
        ? Stream.empty
        : Stream.fromEffect(this.broken(operation, error))
    )
  }

  private readBytes(operation: string, response: HttpClientResponse, maxBytes: number) {
    return Effect.suspend((): Effect.Effect<Buffer, UpstreamFailure> => {
      const tooLarge = Effect.fail(this.unexpected(operation, "too_large", `is longer than ${maxBytes} bytes`))
      if (Number(response.headers["content-length"] ?? 0) > maxBytes) return tooLarge
      const bytes = new GrowingBytes(maxBytes)
      return this.bodyOf(operation, response).pipe(
        Stream.runForEach(chunk => {
          if (bytes.length + chunk.length > maxBytes) return tooLarge
          bytes.add(chunk)
          return Effect.void
        }),
        Effect.map(() => bytes.take())
      )
    })
  }

  /** Reads an optional body. The result is empty if it is not complete within a second. */
  private readBriefly(operation: string, response: HttpClientResponse): Effect.Effect<Buffer> {
    return Effect.timeoutTo(
      Effect.orElseSucceed(this.readBytes(operation, response, errorBodyBytes), () => Buffer.alloc(0)),
      { duration: optionalBodyTimeout, onSuccess: body => body, onTimeout: () => Buffer.alloc(0) }
    )
  }

  /**
   * The failure of an answer other than 2xx. The reason of a 4xx is for the client. Other reasons may contain internal
   * addresses, and are only logged.
   */
  private statusFailure(operation: string, response: HttpClientResponse) {
    return Effect.gen(this, function* () {
      const answered = `The ${this.options.service} answered ${response.status}`
      const reason = reasonIn(yield* this.readBriefly(operation, response))
      const isForClient = response.status >= 400 && response.status < 500
      if (!isForClient && reason !== "") {
        yield* Effect.annotateLogs(Effect.logDebug(`${answered}${reason}`), { operation })
      }
      const message = `${answered} to ${operation}${isForClient ? reason : ""}`
      return yield* failWithStatus(operation, response.status, response.headers["retry-after"], message)
    })
  }
}

/** Requests by an `HttpClient`, which adds W3C `traceparent` if tracing is on. */
export const make = (client: HttpClient.HttpClient, options: Options): UpstreamHttp => new UpstreamHttp(client, options)
