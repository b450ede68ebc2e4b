/** How a connection ends, as WebSocket close codes (RFC 6455, 7.4). */
import { Schema } from "effect"

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
    meaning: "Far too many messages: warnings (`rate_limited` answers) were ignored."
  },
  slowConsumer: {
    code: 4008,
    name: "slow_consumer",
    reconnect: true,
    meaning: "Events waited for too long to be read; nothing is lost, resume with `afterSeq`."
  },
  idle: {
    code: 4009,
    name: "idle",
    reconnect: true,
    meaning: "No answer to a ping."
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

/** The codes as a schema. */
export const CloseCode = Schema.Literal(...Object.values(closeCodes).map(({ code }): number => code)).annotations({
  identifier: "CloseCode",
  description: "Why the server closed a connection."
})

/**
 * Whether a client should connect again after a close code, one that this version does not know included.
 *
 * 4500 to 4999 are final, and so is 1009; whatever else ends a connection is worth another try.
 */
export const shouldReconnect = (code: number): boolean =>
  code !== closeCodes.messageTooBig.code && !(code >= 4500 && code <= 4999)
