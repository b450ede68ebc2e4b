import { Cause, Exit, Option, Schema } from "effect"
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
  /** Whether no connection was opened, which is the service's failure, whatever the request. */
  isUnreached: Schema.optional(Schema.Boolean),
  /** The upstream's `Retry-After`. */
  retryAfterMillis: Schema.optional(Schema.Number),
  message: Schema.String
}) {}

const isClientError = (status: number): boolean => status >= 400 && status < 500

/**
 * What a failure says about the upstream's health.
 *
 * A 4xx (429 and 408 included) comes from a working service, and so does a body over our limit, whose size is up to a
 * user. A redirect is a failure: it is never followed, and not from the service itself.
 *
 * A `malformed` answer says nothing. As a failure, a user whose file causes it could block all others. As a success, a
 * page of something in front of the service would end an outage.
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

/** The verdict on a try. Interruptions and our own defects say nothing. */
export const verdictOf = verdictBy(verdictOfFailure)

/** The verdict on a part of a service, such as an instance. An unreachable service says nothing about it. */
export const verdictOnPart = verdictBy(failure =>
  failure.isUnreached === true ? "abandoned" : verdictOfFailure(failure)
)

/**
 * The verdict on the service by a call to a part of it: only an unreachable service is a failure. Others may be the
 * part's.
 */
export const verdictOnWhole = verdictBy(failure => {
  if (failure.isUnreached === true) return "failure"
  return verdictOfFailure(failure) === "failure" ? "abandoned" : verdictOfFailure(failure)
})

/** How a try ended, as a label of metrics. */
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

export const outcomeOf = <A>(exit: Exit.Exit<A, UpstreamFailure>): Outcome => {
  if (Exit.isSuccess(exit)) return "ok"
  if (Cause.isInterruptedOnly(exit.cause)) return "interrupted"
  const failure = Cause.failureOption(exit.cause)
  if (Option.isNone(failure)) return "defect"
  const { reason, statusCode } = failure.value
  if (reason !== "status") return reason
  return statusCode !== undefined && isClientError(statusCode) ? "client_error" : "server_error"
}
