/** The errors of calls for sessions. Handshakes fail with the errors of the key-value store. */
import { type ClientError, isClientError } from "./Errors.ts"
import type { ErrorCode } from "./SessionModel.ts"

/** The gateway refused a request. */
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

/** The connection was lost before the answer, and the request is not idempotent: it may have been executed. */
export class AnswerLost extends Error {
  readonly _tag = "AnswerLost"
  override readonly name = "AnswerLost"
}

/** The link has ended: by a close code after which a client must not reconnect, or by `close`. */
export class ConnectionClosed extends Error {
  readonly _tag = "ConnectionClosed"
  override readonly name = "ConnectionClosed"

  constructor(
    message: string,
    /** The close code of the gateway (RFC 6455, 7.4); 1000 if this client closed it. */
    readonly code: number
  ) {
    super(message)
  }
}

/** Every error of a call for a session. */
export type SessionsError = RequestRefused | AnswerLost | ConnectionClosed | ClientError

/** Whether a thrown value is a {@link SessionsError}. */
export const isSessionsError = (u: unknown): u is SessionsError =>
  u instanceof RequestRefused || u instanceof AnswerLost || u instanceof ConnectionClosed || isClientError(u)
