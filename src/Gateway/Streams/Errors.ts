/** The HTTP errors of failed requests: one table from the codes of the protocol. */
import {
  type ApiError,
  BadGateway,
  BadRequest,
  Conflict,
  Forbidden,
  GatewayTimeout,
  InternalServerError,
  NotFound,
  PayloadTooLarge,
  ServiceUnavailable,
  Unauthorized
} from "../../Http/ApiError.ts"
import { type ErrorCode, errorMeanings } from "../Protocol/Codes.ts"
import { type Failure, failureOf, Refused, type RequestError } from "../Requests.ts"
import type { SessionUnreadable } from "../SessionEvents.ts"

type ErrorClass = new (props: {
  readonly error: string
  readonly headers?: Readonly<Record<string, string>>
}) => ApiError

/** By code. What is not carried out because the service is busy is 503, as on all routes. */
const classes: Readonly<Record<ErrorCode, ErrorClass>> = {
  bad_request: BadRequest,
  unauthorized: Unauthorized,
  forbidden: Forbidden,
  not_found: NotFound,
  conflict: Conflict,
  too_large: PayloadTooLarge,
  rate_limited: ServiceUnavailable,
  session_not_active: Conflict,
  upstream_unavailable: ServiceUnavailable,
  upstream_error: BadGateway,
  timeout: GatewayTimeout,
  inference_unavailable: ServiceUnavailable,
  internal: InternalServerError
}

/** Codes that mean an outage of this service where the same request may succeed later. */
const outages: ReadonlySet<ErrorCode> = new Set(["conflict", "internal"])

const ofFailure = ({ code, message, retryable = errorMeanings[code].retryable }: Failure): ApiError => {
  const ErrorOf = retryable && outages.has(code) ? ServiceUnavailable : classes[code]
  return new ErrorOf({ error: message, headers: retryable ? ServiceUnavailable.retryAfter() : {} })
}

/** Why a request has failed. */
export type Failed = RequestError | Refused | SessionUnreadable | ApiError

/** The answer to a failed request. */
export const errorOf = (error: Failed): ApiError => {
  if (error instanceof Refused) return ofFailure(error.failure)
  if ("error" in error) return error
  return error._tag === "SessionUnreadable"
    ? new InternalServerError({ error: "The history cannot be read" })
    : ofFailure(failureOf(error))
}
