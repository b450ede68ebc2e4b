/** How commands call the service: requests that the client does not have, retries, writes that are applied once, and the explanation of failures. */

import { randomUUID } from "node:crypto"
import { Duration, Effect, Option, Redacted, Schedule } from "effect"
import * as Monotonic from "../base/Time/Monotonic.ts"
import type { ClientError, SessionsError } from "../Client/Effect/Client.ts"
import { call } from "../Client/Effect/Run.ts"
import { requestsOf } from "../Client/KeyValue.ts"
import { json, type Reader, type Request } from "../Client/Requests.ts"
import { CommandFailed, exitCodes, wrong } from "./CommandFailed.ts"
import { numberOption, text } from "./CommandOptions.ts"
import { type Connection, type Kind, variables } from "./Connection.ts"
import { Output } from "./Terminal/Output.ts"

export interface ServiceRequest extends Request {
  /** The prefix of the path; default `/api/v1`. */
  readonly prefix?: string
  /** An error status whose body is read like that of a success. */
  readonly accepts?: number
}

const accepting =
  (status: number): typeof globalThis.fetch =>
  async (...args) => {
    const response = await globalThis.fetch(...args)
    return response.status === status ? new Response(response.body, { headers: response.headers }) : response
  }

/** Sends a request and reads its answer. */
export const ask = <A>(
  connection: Connection,
  { accepts, prefix = "/api/v1", ...request }: ServiceRequest,
  read: Reader<A>
): Effect.Effect<A, CommandFailed> => {
  const requests = requestsOf({
    baseUrl: connection.url,
    token: Redacted.value(connection.token),
    prefix,
    timeoutMs: Duration.toMillis(connection.timeout),
    ...(accepts !== undefined && { fetch: accepting(accepts) })
  })
  return Effect.mapError(
    call(signal => requests.ask(request, signal, read)),
    failureOf(connection)
  )
}

/** The end of the change log and its epoch. It fails at once if the service cannot be reached. */
export const endOfLog = (connection: Connection): Effect.Effect<{ lastSeq: number; epoch: string }, CommandFailed> => {
  const page = json<{ readonly lastSeq: number }>(({ lastSeq }) => Number.isSafeInteger(lastSeq))
  const query = { after: Number.MAX_SAFE_INTEGER, limit: 1 }
  return ask(connection, { path: "/changes", query }, async (response, limit, format) => ({
    lastSeq: (await page(response, limit, format)).lastSeq,
    epoch: response.headers.get("kv-epoch") ?? ""
  }))
}

const credentials: Readonly<Record<Kind, string>> = { store: "the key of the service", sessions: "the token of a user" }

const credentialHint = (kind: Kind, source: string, wanted = credentials[kind]): string =>
  `${source === "" ? "There is no credential." : `The credential is from ${source}.`} Give ${wanted} by --token-file, ${
    variables[kind].token
  } or a profile.`

/** Whether the answer comes from a proxy that got none from the service, or not in time. */
const isOfProxy = ({ status }: { readonly status: number }): boolean => [408, 429, 502, 504].includes(status)

/** A failed call as the failure of the command. `repeat` says how to repeat a write; it is absent for reads. */
export const failureOf =
  ({ kind, source, url }: Pick<Connection, "url" | "kind" | "source">, repeat?: string) =>
  (error: ClientError | SessionsError): CommandFailed => {
    const { message } = error
    const unknown = repeat === undefined ? "" : ` A write may or may not have been applied: ${repeat}.`
    const failed = (exitCode: number, hint?: string, shown = message) =>
      new CommandFailed({ message: shown, exitCode, ...(hint !== undefined && { hint }) })
    const unavailable = (hint: string, reason = message) => failed(exitCodes.unavailable, hint, `${url}: ${reason}`)
    switch (error._tag) {
      case "Unauthorized":
        return failed(
          exitCodes.accessRefused,
          credentialHint(kind, source),
          `The service refuses the credential: ${message}`
        )
      case "Forbidden":
        return failed(
          exitCodes.accessRefused,
          `The credential only reads, or belongs to another tenant. ${credentialHint(kind, source, "another one")}`
        )
      case "BadRequest":
        return failed(exitCodes.wrongArguments)
      case "PayloadTooLarge":
        return failed(exitCodes.wrongArguments, "The limits are settings of the service: LIMIT_VALUE_BYTES and others.")
      case "UnprocessableContent":
        return failed(exitCodes.wrongArguments, "Nothing was written. Give this write its own key.")
      case "PreconditionFailed":
        return failed(exitCodes.preconditionFailed, "Read the entry, and try again with its version as --if-version.")
      case "ConnectionFailed":
        return error.isTimeout
          ? unavailable(`--timeout allows more time.${unknown}`)
          : unavailable(
              `Is the service running there? causeway dev starts one; --url gives another address.${unknown}`,
              `it cannot be reached: ${message}`
            )
      case "BadGateway":
      case "ServiceUnavailable":
      case "GatewayTimeout":
        return unavailable(`Try again later.${unknown}`)
      case "NotFound":
      case "MethodNotAllowed":
      case "InvalidResponse":
        // The service may have applied the write before the proxy answered.
        if (isOfProxy(error)) return unavailable(`Try again later.${unknown}`)
        return failed(
          exitCodes.failed,
          "Is this the address of a Causeway service, and a version that has this command?",
          `${url}: ${message}`
        )
      case "ConnectionClosed":
      case "AnswerLost":
        return unavailable("Try again later.")
      case "RequestRefused":
        if (error.code === "not_found") {
          return failed(exitCodes.notFound, "causeway sessions list lists the sessions.")
        }
        return failed(
          exitCodes.failed,
          error.retryable ? "Try again later." : `The log of the service has details under trace ${error.traceId}.`
        )
      case "InternalServerError":
        return failed(
          exitCodes.failed,
          error.requestId === undefined ? undefined : `The log of the service has details under ${error.requestId}.`
        )
      default:
        return failed(exitCodes.failed)
    }
  }

const whileUnavailable = "How long to retry while the service is unavailable"

/** The option of the commands that retry by default. */
export const retryForOption = numberOption("retry-for", "seconds", whileUnavailable, 60)

/** The value of `--retry-for`. Fails with exit code 2 if it is negative. */
export const durationOf = (seconds: number): Effect.Effect<Duration.Duration, CommandFailed> =>
  seconds < 0 ? wrong("--retry-for must be 0 or more") : Effect.succeed(Duration.seconds(seconds))

/**
 * Statuses of a service that is unavailable or overloaded, also of a proxy before it; and 409, which the service sends
 * while an earlier request with the same idempotency key is still in progress.
 */
const retryableStatuses = new Set([409, 429, 502, 503, 504])

/** Whether a later attempt may succeed. */
export const isRetryable = (error: ClientError): boolean =>
  error._tag === "ConnectionFailed" || ("status" in error && retryableStatuses.has(error.status))

/** How long the service asks to wait. */
const retryAfter = (error: ClientError): Duration.Duration =>
  Duration.millis("retryAfterMs" in error ? (error.retryAfterMs ?? 0) : 0)

const backoff = Schedule.exponential("100 millis").pipe(
  Schedule.jittered,
  Schedule.modifyDelay((_, delay) => Duration.min(delay, Duration.seconds(5))),
  Schedule.intersect(Schedule.identity<ClientError>()),
  Schedule.modifyDelay(([, error], delay) => Duration.max(delay, retryAfter(error)))
)

/**
 * Retries an idempotent request with exponential backoff and jitter, of 5 s at most, or after the wait that the service
 * asks for. No attempt starts later than `duration` after the first. Writes one line for each outage, not for each
 * attempt.
 */
export const retryWhileUnavailable =
  (duration: Duration.DurationInput, note: (text: string) => Effect.Effect<void>) =>
  <A, R>(request: Effect.Effect<A, ClientError, R>): Effect.Effect<A, ClientError, R> =>
    Effect.flatMap(Monotonic.millis, startedAt => {
      let isReported = false
      const isAgain = (error: ClientError) =>
        Effect.flatMap(Monotonic.millis, now => {
          if (!isRetryable(error) || now - startedAt >= Duration.toMillis(duration)) return Effect.succeed(false)
          const report = isReported ? Effect.void : note(`${error.message}. Trying again.`)
          isReported = true
          return Effect.as(report, true)
        })
      return Effect.retry(request, { schedule: backoff, while: isAgain })
    })

export const writeOptions = {
  idempotencyKey: text("idempotency-key", "The Idempotency-Key of this write; default a random one", "key"),
  retryFor: numberOption("retry-for", "seconds", `${whileUnavailable}; the write is applied once`, 0)
}

/** A text as one word of a shell. */
export const quoted = (key: string): string => (/^[\w-]+$/.test(key) ? key : `'${key.replaceAll("'", "'\\''")}'`)

/**
 * Runs a write with an idempotency key and retries it while the service is unavailable. The message of a failure with
 * unknown outcome contains the key, so that the user can repeat the write.
 */
export const writeOnce = <A>(
  connection: Connection,
  { idempotencyKey, retryFor }: { readonly idempotencyKey: Option.Option<string>; readonly retryFor: number },
  write: (options: { readonly idempotencyKey: string }) => Effect.Effect<A, ClientError>
): Effect.Effect<A, CommandFailed, Output> =>
  Effect.gen(function* () {
    const duration = yield* durationOf(retryFor)
    const key = Option.isSome(idempotencyKey) ? idempotencyKey.value : randomUUID()
    const { note } = yield* Output
    return yield* write({ idempotencyKey: key }).pipe(
      retryWhileUnavailable(duration, note),
      Effect.mapError(
        failureOf(connection, `with --idempotency-key ${quoted(key)} it can be repeated, and is applied once`)
      )
    )
  })
