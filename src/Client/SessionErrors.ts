/**
 * Why a call for a session fails, beside what the errors of the key-value store tell of handshakes.
 */
import { type ClientError, isClientError } from "./Errors.ts"
import type { ErrorCode } from "./SessionModel.ts"

/** The gateway has refused a request. */
export class RequestRefused extends Error {
  readonly _tag = "RequestRefused"
  override readonly name = "RequestRefused"

  constructor(
    message: string,
    readonly code: ErrorCode,
    /** Whether the same request may succeed later. */
    readonly retryable: boolean,
    /** Finds the request in the traces and the log of the gateway. */
    readonly traceId: string
  ) {
    super(message)
  }
}

/**
 * The connection was lost before the answer came, and repeating the request is not safe: it may have been carried out.
 */
export class AnswerLost extends Error {
  readonly _tag = "AnswerLost"
  override readonly name = "AnswerLost"
}

/** The connections have ended for good: by a close code after which a client must not come back, or by `close`. */
export class ConnectionClosed extends Error {
  readonly _tag = "ConnectionClosed"
  override readonly name = "ConnectionClosed"

  constructor(
    message: string,
    /** The close code of the gateway (RFC 6455, 7.4); 1000 where it was this client. */
    readonly code: number
  ) {
    super(message)
  }
}

/** Everything that a call for a session fails with. */
export type SessionsError = RequestRefused | AnswerLost | ConnectionClosed | ClientError

/** Whether something that was thrown is a {@link SessionsError}. */
export const isSessionsError = (u: unknown): u is SessionsError =>
  u instanceof RequestRefused || u instanceof AnswerLost || u instanceof ConnectionClosed || isClientError(u)
