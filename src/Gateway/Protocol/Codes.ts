/** The codes of the protocol: why a request failed, and why a connection was closed. */
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

/** A close code of a connection (RFC 6455, 7.4). */
export interface CloseCode {
  readonly code: number
  /** Sent as the close reason. */
  readonly name: string
  /** Whether a client should reconnect automatically, with exponential backoff and jitter. */
  readonly reconnect: boolean
  readonly meaning: string
}

/** The close codes that the server sends. */
export const closeCodes = {
  goingAway: {
    code: 1001,
    name: "going_away",
    reconnect: true,
    meaning: "The server is shutting down. Connect again, and resume after your last `seq`."
  },
  protocolError: {
    code: 1002,
    name: "protocol_error",
    reconnect: false,
    meaning: "A frame violated the WebSocket protocol (RFC 6455), for example because it was not masked."
  },
  invalidText: {
    code: 1007,
    name: "invalid_utf8",
    reconnect: false,
    meaning: "A text frame was not valid UTF-8."
  },
  tooManyFragments: {
    code: 1008,
    name: "too_many_fragments",
    reconnect: false,
    meaning: "A message came in more fragments than `LIMIT_MESSAGE_FRAGMENTS`, 2,048 by default."
  },
  messageTooBig: {
    code: 1009,
    name: "message_too_big",
    reconnect: false,
    meaning: "A frame exceeded 1 MiB."
  },
  rateLimited: {
    code: 4001,
    name: "rate_limited",
    reconnect: true,
    meaning:
      "The client sent too many messages and ignored `rate_limited` answers. Or all connections were in use, and the tenant had the most; or messages that were still arriving needed too much memory."
  },
  slowConsumer: {
    code: 4008,
    name: "slow_consumer",
    reconnect: true,
    meaning:
      "The client read nothing for 30 seconds while data was waiting, or the server needed the memory. Nothing is lost: resume with `afterSeq`."
  },
  idle: {
    code: 4009,
    name: "idle",
    reconnect: true,
    meaning: "The client did not answer a ping, and read nothing of the data before it."
  },
  messageTimeout: {
    code: 4011,
    name: "message_timeout",
    reconnect: true,
    meaning: "A message did not arrive in full within `LIMIT_MESSAGE_SECONDS`, 60 by default."
  },
  tokenExpired: {
    code: 4501,
    name: "token_expired",
    reconnect: false,
    meaning: "The token has expired. Connect again with a new one."
  },
  protocol: {
    code: 4502,
    name: "protocol",
    reconnect: false,
    meaning: "The client violated this protocol, for example by a binary frame."
  }
} as const satisfies Record<string, CloseCode>

const finalCodes: ReadonlySet<number> = new Set(
  Object.values<CloseCode>(closeCodes).flatMap(({ code, reconnect }) => (reconnect ? [] : [code]))
)

/**
 * Whether a client should reconnect after a close code. The range decides for an unknown code: 4500 to 4999 are final.
 */
export const shouldReconnect = (code: number): boolean => !finalCodes.has(code) && !(code >= 4500 && code <= 4999)
