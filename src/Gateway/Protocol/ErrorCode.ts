import { Schema } from "effect"

/** Why a request failed; `errorMeanings` has the meaning of each code. */
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

/** A code as text. */
export type ErrorCode = (typeof ErrorCode)["Type"]

/** The meaning of a code to clients. */
export interface ErrorMeaning {
  /** Whether the same request may succeed later. An answer may differ. */
  readonly retryable: boolean
  readonly meaning: string
  /** When an answer has another value of `retryable`. */
  readonly otherwise?: string
}

/** The meaning of each code. */
export const errorMeanings: Readonly<Record<ErrorCode, ErrorMeaning>> = {
  bad_request: { retryable: false, meaning: "The request is invalid. The message says why." },
  unauthorized: {
    retryable: false,
    meaning:
      "Reserved. Without a valid token the handshake is answered 401. A token that expires closes the connection with 4501."
  },
  forbidden: {
    retryable: false,
    meaning: "Reserved. A resource that the token gives no access to is `not_found`."
  },
  not_found: { retryable: false, meaning: "There is no such session or file, or it belongs to another tenant." },
  conflict: {
    retryable: false,
    meaning: "The state of the session does not allow this, or the request id is in use.",
    otherwise: "Yes if the session belongs to another node of the service. The message says so."
  },
  too_large: { retryable: false, meaning: "A limit is exceeded. The message names the limit and the actual value." },
  rate_limited: {
    retryable: true,
    meaning:
      "Too many requests in flight or per second, too many subscriptions, too many open turns, or the tenant has used its share of the capacity."
  },
  session_not_active: {
    retryable: false,
    meaning: "The session has no running instance, and the request does not start one.",
    otherwise: "Yes for a request that starts an instance, for example if the session was stopped in the meantime."
  },
  upstream_unavailable: {
    retryable: true,
    meaning: "The agent platform is unavailable.",
    otherwise: "No if the gateway has no agent platform configured."
  },
  upstream_error: {
    retryable: false,
    meaning: "The agent platform refused the request, or failed.",
    otherwise: "Yes if it failed (a status of 500 or above)."
  },
  timeout: {
    retryable: true,
    meaning: "The request exceeded its time limit.",
    otherwise:
      "No if another node of the service owns the session and did not answer: it is not known whether the request was carried out."
  },
  inference_unavailable: {
    retryable: false,
    meaning:
      "Reserved. No request needs the inference proxy. Without it, the title of a session is the first words of its first message."
  },
  internal: {
    retryable: false,
    meaning: "The gateway failed. Its log has the trace id.",
    otherwise: "Yes if its store was unavailable."
  }
}
