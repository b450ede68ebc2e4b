import { Schema } from "effect"

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

export type ErrorCode = (typeof ErrorCode)["Type"]

/** What a code tells a client. */
export interface ErrorMeaning {
  /** Whether the same request may succeed later, unless an answer says otherwise. */
  readonly retryable: boolean
  readonly meaning: string
  /** When an answer says otherwise. */
  readonly otherwise?: string
}

/** What each code tells a client. */
export const errorMeanings: Readonly<Record<ErrorCode, ErrorMeaning>> = {
  bad_request: { retryable: false, meaning: "The frame is not understood; the message names what is wrong." },
  unauthorized: {
    retryable: false,
    meaning:
      "Reserved, not sent at present: without a valid credential the handshake is answered 401, and one that runs out closes the connection with 4501."
  },
  forbidden: {
    retryable: false,
    meaning: "Reserved, not sent at present: what a credential does not allow to see is `not_found`."
  },
  not_found: { retryable: false, meaning: "There is no such session or file, or it belongs to another tenant." },
  conflict: { retryable: false, meaning: "The state of the session does not allow this, or the request id is in use." },
  too_large: { retryable: false, meaning: "Something is over its limit; the message names limit and figure." },
  rate_limited: {
    retryable: true,
    meaning:
      "Too many requests at once or in a second, too many subscriptions, or too many turns open; or the tenant has its share of what the gateway's tenants share."
  },
  session_not_active: {
    retryable: false,
    meaning: "The session has no running instance, and this does not start one, or not any more.",
    otherwise: "Yes for a request that starts an instance, as where the session was stopped meanwhile."
  },
  upstream_unavailable: {
    retryable: true,
    meaning: "The agent platform cannot be reached at present.",
    otherwise: "No where the gateway is configured without one."
  },
  upstream_error: {
    retryable: false,
    meaning: "The agent platform refused or failed.",
    otherwise: "Yes where it failed (a status from 500 on)."
  },
  timeout: { retryable: true, meaning: "It took longer than it may." },
  inference_unavailable: {
    retryable: false,
    meaning:
      "Reserved, not sent at present: no request needs the inference proxy. Without it a session's title is the first words of its first message."
  },
  internal: {
    retryable: false,
    meaning: "The gateway failed; the trace id leads to its log.",
    otherwise: "Yes where its store was away."
  }
}
