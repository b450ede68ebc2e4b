/**
 * Why a call of the client fails.
 */
import { Data } from "effect"
import type * as Plain from "../Client/Client.ts"

interface ResponseFields {
  readonly message: string
  readonly status: number
  /** The name of the request in the log of the service. */
  readonly requestId: string | undefined
  /** How long the service asks to wait before the next try. */
  readonly retryAfterMs: number | undefined
}

/** 400: the request is malformed; the message names the field. */
export class BadRequest extends Data.TaggedError("BadRequest")<ResponseFields> {}

/** 401: the credential is missing or wrong. */
export class Unauthorized extends Data.TaggedError("Unauthorized")<ResponseFields> {}

/** 403: the credential only reads. */
export class Forbidden extends Data.TaggedError("Forbidden")<ResponseFields> {}

/** 404: the service has no such route: `baseUrl` or `prefix` is wrong. An absent entry is no error. */
export class NotFound extends Data.TaggedError("NotFound")<ResponseFields> {}

/** 405: the route takes other methods. */
export class MethodNotAllowed extends Data.TaggedError("MethodNotAllowed")<ResponseFields> {}

/** 409: the request with this idempotency key is still in progress. */
export class Conflict extends Data.TaggedError("Conflict")<ResponseFields> {}

/** 410: the changes that were asked for are no longer kept, or are those of another log. */
export class Gone extends Data.TaggedError("Gone")<
  ResponseFields & {
    /** The epoch of the log that the service has, if it has said so. */
    readonly epoch: string | undefined
    /** The last change that is no longer kept, fit to be the next `after`; `undefined` for another log. */
    readonly trimmedSeq: number | undefined
  }
> {}

/** 412: a precondition does not hold; nothing was written. */
export class PreconditionFailed extends Data.TaggedError("PreconditionFailed")<
  ResponseFields & {
    /** The version of the entry, 0 where it is absent: fit to be the next `ifVersion`. */
    readonly currentVersion: number | undefined
    /** Which operation of a batch was refused. */
    readonly operation: number | undefined
  }
> {}

/** 413: a value, a batch or a body is over its limit; the message names it and the figure. */
export class PayloadTooLarge extends Data.TaggedError("PayloadTooLarge")<ResponseFields> {}

/** 415: the body is not JSON. */
export class UnsupportedMediaType extends Data.TaggedError("UnsupportedMediaType")<ResponseFields> {}

/** 422: the idempotency key was used for another request. */
export class UnprocessableContent extends Data.TaggedError("UnprocessableContent")<ResponseFields> {}

/** 431: the head of the request is too large. */
export class RequestHeaderFieldsTooLarge extends Data.TaggedError("RequestHeaderFieldsTooLarge")<ResponseFields> {}

/** 500: a defect of the service; its log has the detail under the `requestId`. */
export class InternalServerError extends Data.TaggedError("InternalServerError")<ResponseFields> {}

/** 501: the service does not offer it; the message says what does. */
export class NotImplemented extends Data.TaggedError("NotImplemented")<ResponseFields> {}

/** 503: the store is unavailable, or the service sheds load. A write may or may not have been applied. */
export class ServiceUnavailable extends Data.TaggedError("ServiceUnavailable")<ResponseFields> {}

/** 507: the disk of the service has no room for what was asked for. */
export class InsufficientStorage extends Data.TaggedError("InsufficientStorage")<ResponseFields> {}

/** The answer is none of the service, such as the error page of a proxy. */
export class InvalidResponse extends Data.TaggedError("InvalidResponse")<ResponseFields> {}

/** An answer, an event or a frame is over the client's own limit, and was not read to its end. */
export class ResponseTooLarge extends Data.TaggedError("ResponseTooLarge")<{
  readonly message: string
  readonly limitBytes: number
}> {}

/** There is no whole answer. A write may or may not have been applied. */
export class ConnectionFailed extends Data.TaggedError("ConnectionFailed")<{
  readonly message: string
  readonly cause?: unknown
  /** Whether nothing came for too long. */
  readonly isTimeout: boolean
}> {}

/** The token could not be had; `cause` has the reason. */
export class TokenUnavailable extends Data.TaggedError("TokenUnavailable")<{
  readonly message: string
  readonly cause?: unknown
}> {}

/** Every error that a call can fail with. */
export type ClientError =
  | BadRequest
  | Unauthorized
  | Forbidden
  | NotFound
  | MethodNotAllowed
  | Conflict
  | Gone
  | PreconditionFailed
  | PayloadTooLarge
  | UnsupportedMediaType
  | UnprocessableContent
  | RequestHeaderFieldsTooLarge
  | InternalServerError
  | NotImplemented
  | ServiceUnavailable
  | InsufficientStorage
  | InvalidResponse
  | ResponseTooLarge
  | ConnectionFailed
  | TokenUnavailable

/** An error of the plain client as one of Effect. */
export const fromPlain = (error: Plain.ClientError): ClientError => {
  const { cause, message } = error
  switch (error._tag) {
    case "ConnectionFailed":
      return new ConnectionFailed({ message, cause, isTimeout: error.isTimeout })
    case "TokenUnavailable":
      return new TokenUnavailable({ message, cause })
    case "ResponseTooLarge":
      return new ResponseTooLarge({ message, limitBytes: error.limitBytes })
    case "PreconditionFailed": {
      const { currentVersion, operation } = error
      return new PreconditionFailed({ ...fieldsOf(error), currentVersion, operation })
    }
    case "Gone": {
      const { epoch, trimmedSeq } = error
      return new Gone({ ...fieldsOf(error), epoch, trimmedSeq })
    }
    default:
      return new byTag[error._tag](fieldsOf(error))
  }
}

const fieldsOf = ({ message, requestId, retryAfterMs, status }: ResponseFields): ResponseFields => ({
  message,
  requestId,
  retryAfterMs,
  status
})

const byTag = {
  BadRequest,
  Unauthorized,
  Forbidden,
  NotFound,
  MethodNotAllowed,
  Conflict,
  PayloadTooLarge,
  UnsupportedMediaType,
  UnprocessableContent,
  RequestHeaderFieldsTooLarge,
  InternalServerError,
  NotImplemented,
  ServiceUnavailable,
  InsufficientStorage,
  InvalidResponse
} as const

/** The gateway has refused a request. */
export class RequestRefused extends Data.TaggedError("RequestRefused")<{
  readonly message: string
  readonly code: Plain.RequestRefused["code"]
  /** Whether the same request may succeed later. */
  readonly retryable: boolean
  /** Finds the request in the traces and the log of the gateway. */
  readonly traceId: string
}> {}

/**
 * The connection was lost before the answer came, and repeating the request is not safe: it may have been carried out.
 */
export class AnswerLost extends Data.TaggedError("AnswerLost")<{ readonly message: string }> {}

/** The connections have ended for good: by a close code after which a client must not come back, or by the scope. */
export class ConnectionClosed extends Data.TaggedError("ConnectionClosed")<{
  readonly message: string
  /** The close code of the gateway (RFC 6455, 7.4); 1000 where it was this client. */
  readonly code: number
}> {}

/** Every error that a call for a session can fail with. */
export type SessionsError = RequestRefused | AnswerLost | ConnectionClosed | ClientError

/** An error of the plain client of sessions as one of Effect. */
export const fromPlainSessions = (error: Plain.SessionsError): SessionsError => {
  const { message } = error
  switch (error._tag) {
    case "RequestRefused": {
      const { code, retryable, traceId } = error
      return new RequestRefused({ message, code, retryable, traceId })
    }
    case "AnswerLost":
      return new AnswerLost({ message })
    case "ConnectionClosed":
      return new ConnectionClosed({ message, code: error.code })
    default:
      return fromPlain(error)
  }
}
