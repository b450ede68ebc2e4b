/** The close codes of connections (RFC 6455, 7.4). */

/** A close code. */
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
