import { Schema } from "effect"

/** Why a request failed. */
export const ErrorCode = Schema.Literal(
  "bad_request",
  "unauthorized",
  "forbidden",
  "not_found",
  "conflict",
  "too_large",
  "rate_limited",
  "session_not_active",
  "upstream_unavailable",
  "upstream_error",
  "timeout",
  "inference_unavailable",
  "internal"
).annotations({ identifier: "ErrorCode", description: "Why a request failed." })

/** Why a request failed. */
export type ErrorCode = (typeof ErrorCode)["Type"]

/** What a code tells a client. */
export interface ErrorMeaning {
  /** Whether the same request may succeed later, unless an answer says otherwise. */
  readonly retryable: boolean
  readonly meaning: string
}

/** What each code tells a client. */
export const errorMeanings: Readonly<Record<ErrorCode, ErrorMeaning>> = {
  bad_request: { retryable: false, meaning: "The frame is not understood; the message names what is wrong." },
  unauthorized: { retryable: false, meaning: "The connection's credential is not valid, or not any more." },
  forbidden: { retryable: false, meaning: "The credential is valid and does not allow this." },
  not_found: { retryable: false, meaning: "There is no such session or file, or it belongs to another tenant." },
  conflict: { retryable: false, meaning: "The state of the session does not allow this, or the request id is in use." },
  too_large: { retryable: false, meaning: "Something is over its limit; the message names limit and figure." },
  rate_limited: { retryable: true, meaning: "Too many requests at once or in a second." },
  session_not_active: {
    retryable: false,
    meaning: "The session has no running instance, and this does not start one."
  },
  upstream_unavailable: { retryable: true, meaning: "The agent platform cannot be reached at present." },
  upstream_error: { retryable: false, meaning: "The agent platform refused or failed." },
  timeout: { retryable: true, meaning: "It took longer than it may." },
  inference_unavailable: { retryable: false, meaning: "There is no inference proxy." },
  internal: { retryable: false, meaning: "The gateway failed; the trace id leads to its log." }
}
