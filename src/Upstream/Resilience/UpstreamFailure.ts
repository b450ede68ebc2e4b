/**
 * The failure of a call to an upstream service, and what it means for the health of the service.
 */
import { Cause, Clock, Effect, Exit, Option, Schema } from "effect"
import type { Verdict } from "./CircuitBreakerState.ts"

/**
 * Why a call failed: no connection or a lost one (`connection`), no answer in time (`timeout`), an answer other than 2xx
 * (`status`), one that cannot be decoded (`malformed`) or is too long (`too_large`), or no call since the breaker is
 * open (`circuit_open`).
 */
export const Reason = Schema.Literal("connection", "timeout", "status", "malformed", "too_large", "circuit_open")

/** A call to an upstream service failed; each client turns it into its own error. */
export class UpstreamFailure extends Schema.TaggedError<UpstreamFailure>()("UpstreamFailure", {
  operation: Schema.String,
  reason: Reason,
  /** The HTTP status of the answer, if there was one. */
  statusCode: Schema.optional(Schema.Int),
  /** Whether no connection could be opened, which is the service's failure, whatever the request. */
  isUnreached: Schema.optional(Schema.Boolean),
  /** The upstream's `Retry-After`. */
  retryAfterMillis: Schema.optional(Schema.Number),
  message: Schema.String
}) {}

/** The message of an error's innermost cause, for logs. */
export const reasonOf = (error: unknown, depth = 0): string => {
  if (typeof error !== "object" || error === null) return String(error)
  if ("cause" in error && error.cause !== undefined && depth < 5) return reasonOf(error.cause, depth + 1)
  const code = "code" in error && typeof error.code === "string" ? error.code : ""
  const message = "message" in error && typeof error.message === "string" ? error.message : ""
  return (message.includes(code) ? message : `${code} ${message}`).trim() || "no reason given"
}

/**
 * Error codes of Node.js, undici and OpenSSL. None of them has a lower-case letter. Each alternative has a single way to
 * match, so that a text is searched in linear time.
 */
const code = /(?<![\w.-])(?:E[A-Z]{3}[A-Z_]*|(?:UND_ERR|ERR|CERT|DEPTH|UNABLE|SELF|HOSTNAME)_[A-Z_]+)(?![\w.-])/

/** Maximum characters of a text that are searched for a code. */
const searched = 1000

/** The code in an error's message, if there is one. */
export const codeIn = (text: string): string | undefined => code.exec(text.slice(0, searched))?.[0]

/** Codes of a connection that could not be opened. */
const unreached =
  /^(?:ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EAI_FAIL|EHOSTUNREACH|EHOSTDOWN|ENETUNREACH|ENETDOWN|EADDRNOTAVAIL|EPROTO|UND_ERR_CONNECT_TIMEOUT|ERR_TLS_[A-Z_]+|ERR_SSL_[A-Z_]+|(?:CERT|DEPTH|UNABLE|SELF|HOSTNAME)_[A-Z_]+)$/

/** Whether an error means that no connection was opened, as opposed to a lost connection. */
const isUnreached = (reason: string): boolean =>
  unreached.test(codeIn(reason) ?? "") || reason.startsWith("connect ETIMEDOUT")

/**
 * The failure of a connection. Its message has at most a code: the error's own message may contain hosts and ports of the
 * internal network.
 */
export const connectionFailure = (operation: string, service: string, reason: string): UpstreamFailure => {
  const code = codeIn(reason)
  return new UpstreamFailure({
    operation,
    reason: "connection",
    isUnreached: isUnreached(reason),
    message: `No connection to the ${service}${code === undefined ? "" : ` (${code})`}`
  })
}

/** The delay of a `Retry-After` header (RFC 9110, 10.2.3), in milliseconds, if it is valid. */
export const parseRetryAfter = (header: string | undefined, now: number): number | undefined => {
  const text = header?.trim() ?? ""
  if (/^\d{1,9}$/.test(text)) return Number(text) * 1000
  const date = /^[A-Za-z]{3,9},? /.test(text) ? Date.parse(text) : Number.NaN
  return Number.isNaN(date) ? undefined : Math.max(0, date - now)
}

/** Fails with an answer's status, and its `Retry-After` header. */
export const failWithStatus = (
  operation: string,
  statusCode: number | undefined,
  retryAfter: string | undefined,
  message: string
): Effect.Effect<never, UpstreamFailure> =>
  Effect.flatMap(Clock.currentTimeMillis, now => {
    const retryAfterMillis = parseRetryAfter(retryAfter, now)
    return new UpstreamFailure({ operation, reason: "status", statusCode, retryAfterMillis, message })
  })

const isClientError = (status: number): boolean => status >= 400 && status < 500

/**
 * What a failure means for the upstream's health.
 *
 * A 4xx (including 429 and 408) comes from a working service, and so does a body above our limit, whose size a user
 * controls. A redirect is a failure: it is never followed, and does not come from the service itself.
 *
 * A `malformed` answer means nothing. As a failure, a user whose file causes it could block all others. As a success, an
 * error page of a proxy would end an outage.
 */
const verdictOfFailure = ({ reason, statusCode }: UpstreamFailure): Verdict => {
  switch (reason) {
    case "connection":
    case "timeout":
      return "failure"
    case "malformed":
      return "abandoned"
    case "status":
      return statusCode === undefined || !isClientError(statusCode) ? "failure" : "success"
    case "too_large":
    case "circuit_open":
      return "success"
  }
}

/** Whether a failure counts against the upstream. */
export const isFault = (failure: UpstreamFailure): boolean => verdictOfFailure(failure) === "failure"

const verdictBy =
  (ofFailure: (failure: UpstreamFailure) => Verdict) =>
  <A, E>(exit: Exit.Exit<A, E>): Verdict =>
    Exit.match(exit, {
      onSuccess: () => "success" as const,
      onFailure: cause => {
        const failure = Option.getOrUndefined(Cause.failureOption(cause))
        return failure instanceof UpstreamFailure ? ofFailure(failure) : "abandoned"
      }
    })

/** The verdict on a try. Interruptions and our own defects do not count. */
export const verdictOf = verdictBy(verdictOfFailure)

/** The verdict on a part of a service, such as an instance. An unreachable service does not count. */
export const verdictOnPart = verdictBy(failure =>
  failure.isUnreached === true ? "abandoned" : verdictOfFailure(failure)
)

/**
 * The verdict on the service by a call to a part of it. Only an unreachable service is a failure: other failures may be
 * those of the part.
 */
export const verdictOnWhole = verdictBy(failure => {
  if (failure.isUnreached === true) return "failure"
  return verdictOfFailure(failure) === "failure" ? "abandoned" : verdictOfFailure(failure)
})

/** The outcome of a try, as a label of metrics. */
export type Outcome = "ok" | "client_error" | "server_error" | "interrupted" | "defect" | (typeof Reason)["Type"]

/** The outcomes of requests that were sent. */
export const measuredOutcomes: ReadonlyArray<Outcome> = [
  "ok",
  "client_error",
  "server_error",
  "interrupted",
  "defect",
  ...Reason.literals.filter(reason => reason !== "status" && reason !== "circuit_open")
]

/** The outcome of a request, for metrics and logs. */
export const outcomeOf = <A>(exit: Exit.Exit<A, UpstreamFailure>): Outcome => {
  if (Exit.isSuccess(exit)) return "ok"
  if (Cause.isInterruptedOnly(exit.cause)) return "interrupted"
  const failure = Cause.failureOption(exit.cause)
  if (Option.isNone(failure)) return "defect"
  const { reason, statusCode } = failure.value
  if (reason !== "status") return reason
  return statusCode !== undefined && isClientError(statusCode) ? "client_error" : "server_error"
}

/**
 * Counts a failure only if none of its callers has one that has counted, until a call succeeds: what fails for several
 * callers is not their fault. Once enough failures have counted to open the breaker, all failures count.
 */
export class CallerVerdicts {
  /** The callers of each failure that has counted since the last success. */
  private readonly failed: Array<ReadonlyArray<string>> = []
  /** The verdict on the service by a call to it. */
  readonly onCall = this.clearing(verdictOf)
  /** The verdict on the service by a call to a part without a caller. */
  readonly onPart = this.clearing(verdictOnWhole)

  /** @param openAfter consecutive failures that open the breaker */
  constructor(private readonly openAfter: number) {}

  /** The verdict by a call of callers of different kinds, such as a tenant and an agent type, in a constant order. */
  onCallOf(callers: ReadonlyArray<string>, judge: typeof verdictOf = verdictOf): typeof verdictOf {
    return this.clearing(exit => {
      const verdict = judge(exit)
      if (verdict !== "failure" || this.failed.length >= this.openAfter) return verdict
      if (this.failed.some(others => others.some((other, kind) => other === callers[kind]))) return verdictOnWhole(exit)
      this.failed.push(callers)
      return verdict
    })
  }

  private clearing(judge: typeof verdictOf): typeof verdictOf {
    return exit => {
      const verdict = judge(exit)
      if (verdict === "success") this.failed.length = 0
      return verdict
    }
  }
}
