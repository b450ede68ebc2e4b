/** The errors of calls. */
import { Data } from "effect"
import type * as Plain from "../Client.ts"

interface ResponseFields {
  readonly message: string
  readonly status: number
  /** The id of the request in the log of the service. */
  readonly requestId: string | undefined
  /** How long the service asks to wait before the next attempt. */
  readonly retryAfterMs: number | undefined
}

/** 400: the request is malformed; the message names the field. */
export class BadRequest extends Data.TaggedError("BadRequest")<ResponseFields> {}

/** 401: the credential is missing or wrong. */
export class Unauthorized extends Data.TaggedError("Unauthorized")<ResponseFields> {}

/** 403: the credential is read-only. */
export class Forbidden extends Data.TaggedError("Forbidden")<ResponseFields> {}

/** 404: the service has no such route: `baseUrl` or `prefix` is wrong. An absent entry is not an error. */
export class NotFound extends Data.TaggedError("NotFound")<ResponseFields> {}

/** 405: the route has other methods. */
export class MethodNotAllowed extends Data.TaggedError("MethodNotAllowed")<ResponseFields> {}

/** 409: the request with this idempotency key is still in progress. */
export class Conflict extends Data.TaggedError("Conflict")<ResponseFields> {}

/** 410: the requested changes are no longer kept, or belong to another log. */
export class Gone extends Data.TaggedError("Gone")<
  ResponseFields & {
    /** The epoch of the log of the service, if the answer has it. */
    readonly epoch: string | undefined
    /** The last change that is no longer kept, for the next `after`; `undefined` for another log. */
    readonly trimmedSeq: number | undefined
  }
> {}

/** 412: a precondition does not hold; nothing was written. */
export class PreconditionFailed extends Data.TaggedError("PreconditionFailed")<
  ResponseFields & {
    /** The version of the entry, for the next `ifVersion`; 0 if it is absent. */
    readonly currentVersion: number | undefined
    /** The index of the refused operation of a batch. */
    readonly operation: number | undefined
  }
> {}

/** 413: a value, a batch or a body exceeds its limit; the message names both. */
export class PayloadTooLarge extends Data.TaggedError("PayloadTooLarge")<ResponseFields> {}

/** 415: the body is not JSON. */
export class UnsupportedMediaType extends Data.TaggedError("UnsupportedMediaType")<ResponseFields> {}

/** 422: the idempotency key was used for another request. */
export class UnprocessableContent extends Data.TaggedError("UnprocessableContent")<ResponseFields> {}

/** 431: the head of the request is too large. */
export class RequestHeaderFieldsTooLarge extends Data.TaggedError("RequestHeaderFieldsTooLarge")<ResponseFields> {}

/** 500: a defect of the service; its log has details under the `requestId`. */
export class InternalServerError extends Data.TaggedError("InternalServerError")<ResponseFields> {}

/** 501: the service does not support the request; the message says what does. */
export class NotImplemented extends Data.TaggedError("NotImplemented")<ResponseFields> {}

/** 503: the store is unavailable, or the service sheds load. A write may or may not have been applied. */
export class ServiceUnavailable extends Data.TaggedError("ServiceUnavailable")<ResponseFields> {}

/** 507: the disk of the service has no room for the result. */
export class InsufficientStorage extends Data.TaggedError("InsufficientStorage")<ResponseFields> {}

/** The answer does not come from the service: for example, the error page of a proxy. */
export class InvalidResponse extends Data.TaggedError("InvalidResponse")<ResponseFields> {}

/** An answer, an event or a frame exceeds the limit of the client, and was not read completely. */
export class ResponseTooLarge extends Data.TaggedError("ResponseTooLarge")<{
  readonly message: string
  readonly limitBytes: number
}> {}

/** There is no complete answer. A write may or may not have been applied. */
export class ConnectionFailed extends Data.TaggedError("ConnectionFailed")<{
  readonly message: string
  readonly cause?: unknown
  /** Whether a time limit was exceeded. */
  readonly isTimeout: boolean
}> {}

/** The token effect failed; `cause` has the reason. */
export class TokenUnavailable extends Data.TaggedError("TokenUnavailable")<{
  readonly message: string
  readonly cause?: unknown
}> {}

const classes = {
  BadRequest,
  Unauthorized,
  Forbidden,
  NotFound,
  MethodNotAllowed,
  Conflict,
  Gone,
  PreconditionFailed,
  PayloadTooLarge,
  UnsupportedMediaType,
  UnprocessableContent,
  RequestHeaderFieldsTooLarge,
  InternalServerError,
  NotImplemented,
  ServiceUnavailable,
  InsufficientStorage,
  InvalidResponse,
  ResponseTooLarge,
  ConnectionFailed,
  TokenUnavailable
} as const

/** Every error of a call. */
export type ClientError = InstanceType<(typeof classes)[keyof typeof classes]>

/** The gateway refused a request. */
export class RequestRefused extends Data.TaggedError("RequestRefused")<{
  readonly message: string
  readonly code: Plain.RequestRefused["code"]
  /** Whether the same request may succeed later. */
  readonly retryable: boolean
  /** Finds the request in the traces and the log of the gateway. */
  readonly traceId: string
}> {}

/** The connection was lost before the answer, and the request is not idempotent: it may have been executed. */
export class AnswerLost extends Data.TaggedError("AnswerLost")<{ readonly message: string }> {}

/** The link has ended: by a close code after which a client must not reconnect, or by the scope. */
export class ConnectionClosed extends Data.TaggedError("ConnectionClosed")<{
  readonly message: string
  /** The close code of the gateway (RFC 6455, 7.4); 1000 if this client closed it. */
  readonly code: number
}> {}

/** Every error of a call for a session. */
export type SessionsError = RequestRefused | AnswerLost | ConnectionClosed | ClientError

const sessionClasses = { ...classes, RequestRefused, AnswerLost, ConnectionClosed } as const

/** An error of the plain client of sessions as one of Effect, which has the same members. */
export const fromPlainSessions = (error: Plain.SessionsError): SessionsError => {
  const { cause, message } = error
  const Class = sessionClasses[error._tag] as new (members: object) => SessionsError
  return new Class({ ...error, message, ...(cause !== undefined && { cause }) })
}

/** An error of the plain client as one of Effect. */
export const fromPlain = (error: Plain.ClientError): ClientError => fromPlainSessions(error) as ClientError
