import { Cause, Exit, Option, Schema } from "effect"
import type { Verdict } from "./CircuitBreaker.ts"

/**
 * Why a call to an upstream service failed: no connection or a broken one (`connection`), no answer in time
 * (`timeout`), an answer that is no success (`status`), one that cannot be understood (`malformed`) or is longer
 * than allowed (`too_large`), or no call at all since the breaker is open (`circuit_open`).
 */
export const Reason = Schema.Literal("connection", "timeout", "status", "malformed", "too_large", "circuit_open")

/** A call to an upstream service failed; each client turns it into its own error. */
export class UpstreamFailure extends Schema.TaggedError<UpstreamFailure>()("UpstreamFailure", {
  operation: Schema.String,
  reason: Reason,
  /** The HTTP status that the upstream answered with, where it answered. */
  statusCode: Schema.optional(Schema.Int),
  /** Whether no connection was opened at all: then it is the service that is away, whatever was asked for. */
  isUnreached: Schema.optional(Schema.Boolean),
  /** How long the upstream asked to be left alone. */
  retryAfterMillis: Schema.optional(Schema.Number),
  message: Schema.String
}) {}

/** The client errors of HTTP tell of the request, not of the service. */
const isClientError = (status: number): boolean => status >= 400 && status < 500

/**
 * What a failure says about the upstream's health.
 *
 * A 4xx (429 and 408 included) comes from a service that works, and so does a body longer than we take, whose size
 * is up to a user. A redirect, which is never followed, is not the service speaking, and as bad as a 500.
 *
 * A success that cannot be understood says nothing: it came in time, and what it holds may be up to one user, such
 * as the bytes of a file. Were it a failure, whoever has such a file could keep everybody out; were it a success, it
 * would end an outage that goes on behind somebody else's page.
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

/** Whether a failure is the upstream's, and counts for the breaker. */
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

/** What the end of a try means to the breaker; interruption and defects of ours mean nothing. */
export const verdictOf = verdictBy(verdictOfFailure)

/** The same for one part of a service, as an instance of the platform: that the service is away says nothing of it. */
export const verdictOnPart = verdictBy(failure =>
  failure.isUnreached === true ? "abandoned" : verdictOfFailure(failure)
)

/**
 * What the end of a call to a part means to the service: only that no connection is opened is the service's own
 * failure. What comes over one, and what does not, may be the part's doing.
 */
export const verdictOnWhole = verdictBy(failure => {
  if (failure.isUnreached === true) return "failure"
  return verdictOfFailure(failure) === "failure" ? "abandoned" : verdictOfFailure(failure)
})

/** How a try ended, as metrics are labelled: a bounded set of words. */
export type Outcome = "ok" | "client_error" | "server_error" | "interrupted" | "defect" | (typeof Reason)["Type"]

/** The ends that a request can have which was made at all. */
export const measuredOutcomes: ReadonlyArray<Outcome> = [
  "ok",
  "client_error",
  "server_error",
  "interrupted",
  "defect",
  ...Reason.literals.filter(reason => reason !== "status" && reason !== "circuit_open")
]

/** The label of a try's end. */
export const outcomeOf = <A>(exit: Exit.Exit<A, UpstreamFailure>): Outcome => {
  if (Exit.isSuccess(exit)) return "ok"
  if (Cause.isInterruptedOnly(exit.cause)) return "interrupted"
  const failure = Cause.failureOption(exit.cause)
  if (Option.isNone(failure)) return "defect"
  const { reason, statusCode } = failure.value
  if (reason !== "status") return reason
  return statusCode !== undefined && isClientError(statusCode) ? "client_error" : "server_error"
}
