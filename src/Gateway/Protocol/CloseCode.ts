/** How a connection ends, as WebSocket close codes (RFC 6455, 7.4). */

/** One way for a connection to end. */
export interface CloseCode {
  readonly code: number
  /** Sent as the close reason. */
  readonly name: string
  /** Whether a client should connect again by itself, with a delay that grows and varies. */
  readonly reconnect: boolean
  readonly meaning: string
}

/** The close codes that the server sends. */
export const closeCodes = {
  goingAway: {
    code: 1001,
    name: "going_away",
    reconnect: true,
    meaning: "The server is going away; another, or the same after its restart, goes on from your last `seq`."
  },
  protocolError: {
    code: 1002,
    name: "protocol_error",
    reconnect: false,
    meaning: "A frame broke the rules of WebSocket (RFC 6455), such as one without a mask or with a reserved bit."
  },
  invalidText: {
    code: 1007,
    name: "invalid_utf8",
    reconnect: false,
    meaning: "A text frame was not UTF-8."
  },
  messageTooBig: {
    code: 1009,
    name: "message_too_big",
    reconnect: false,
    meaning: "A frame was over 1 MiB; sending it again would end the same way."
  },
  rateLimited: {
    code: 4001,
    name: "rate_limited",
    reconnect: true,
    meaning:
      "Far too many messages: warnings (`rate_limited` answers) were ignored. Or the tenant had the most connections when all were taken, and another needed one."
  },
  slowConsumer: {
    code: 4008,
    name: "slow_consumer",
    reconnect: true,
    meaning:
      "You read nothing of what was waiting for 30 seconds, or the server needed the memory for others; nothing is lost, resume with `afterSeq`."
  },
  idle: {
    code: 4009,
    name: "idle",
    reconnect: true,
    meaning: "No answer to a ping, and nothing read that was waiting before it."
  },
  tokenExpired: {
    code: 4501,
    name: "token_expired",
    reconnect: false,
    meaning: "The credential has run out; connect again with a fresh one."
  },
  protocol: {
    code: 4502,
    name: "protocol",
    reconnect: false,
    meaning: "The client does not speak this protocol, such as one that sends binary frames."
  }
} as const satisfies Record<string, CloseCode>

const finalCodes: ReadonlySet<number> = new Set(
  Object.values<CloseCode>(closeCodes).flatMap(({ code, reconnect }) => (reconnect ? [] : [code]))
)

/**
 * Whether a client should connect again after a close code. For a code that is unknown here its range decides: 4500 to
 * 4999 are final, after any other a new attempt may succeed.
 */
export const shouldReconnect = (code: number): boolean => !finalCodes.has(code) && !(code >= 4500 && code <= 4999)
