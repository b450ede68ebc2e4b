/** The errors of calls. Each has its own `_tag`, so that a `switch` over it is exhaustive. */
import type { ErrorCode } from "./SessionModel.ts"

/** The details of an error in an answer. */
export interface ErrorDetails {
  readonly message: string
  readonly status: number
  /** The id of the request in the log of the service. */
  readonly requestId: string | undefined
  /** How long the service asks to wait before the next attempt. */
  readonly retryAfterMs: number | undefined
  readonly etag?: string | null
  readonly epoch?: string | null
  readonly trimmedSeq?: string | null
}

/** The service, or a proxy before it, answered with an error. */
export abstract class ResponseError extends Error {
  abstract readonly _tag: string
  readonly status: number
  readonly requestId: string | undefined
  readonly retryAfterMs: number | undefined

  constructor({ message, requestId, retryAfterMs, status }: ErrorDetails) {
    super(message)
    this.status = status
    this.requestId = requestId
    this.retryAfterMs = retryAfterMs
  }

  override get name(): string {
    return this._tag
  }
}

/** The class of the answers with an error that has this tag. */
const answered = <const Tag extends string>(tag: Tag) =>
  class extends ResponseError {
    readonly _tag = tag
  }

/** 400: the request is malformed; the message names the field. */
export class BadRequest extends answered("BadRequest") {}

/** 401: the credential is missing or wrong. */
export class Unauthorized extends answered("Unauthorized") {}

/** 403: the credential is read-only. */
export class Forbidden extends answered("Forbidden") {}

/** 404: the service has no such route: `baseUrl` or `prefix` is wrong. An absent entry is not an error. */
export class NotFound extends answered("NotFound") {
  /** Whether an entry is absent, and not the route. */
  get isEntry(): boolean {
    return this.message === "Not found"
  }
}

/** 405: the route has other methods. */
export class MethodNotAllowed extends answered("MethodNotAllowed") {}

/** 409: the request with this idempotency key is still in progress. */
export class Conflict extends answered("Conflict") {}

/** 410: the requested changes are no longer kept, or belong to another log. */
export class Gone extends answered("Gone") {
  /** The epoch of the log of the service, if the answer has it. */
  readonly epoch: string | undefined
  /** The last change that is no longer kept, for the next `after`; `undefined` for another log. */
  readonly trimmedSeq: number | undefined

  constructor(details: ErrorDetails) {
    super(details)
    this.epoch = details.epoch ?? undefined
    this.trimmedSeq = /^\d{1,16}$/.test(details.trimmedSeq ?? "") ? Number(details.trimmedSeq) : undefined
  }
}

/** 412: a precondition does not hold; nothing was written. */
export class PreconditionFailed extends answered("PreconditionFailed") {
  /** The version of the entry, for the next `ifVersion`; 0 if it is absent. */
  readonly currentVersion: number | undefined
  /** The index of the refused operation of a batch. */
  readonly operation: number | undefined

  constructor(details: ErrorDetails) {
    super(details)
    // The answer to a batch has no ETag; its message has the version.
    const stated = /(?:operations\[(\d+)\])?: the entry is (?:absent|at version (\d+))/.exec(details.message)
    const version = /^"(\d+)"$/.exec(details.etag ?? "")?.[1] ?? stated?.[2] ?? (stated === null ? undefined : 0)
    this.currentVersion = version === undefined ? undefined : Number(version)
    this.operation = stated?.[1] === undefined ? undefined : Number(stated[1])
  }
}

/** 413: a value, a batch or a body exceeds its limit; the message names both. */
export class PayloadTooLarge extends answered("PayloadTooLarge") {}

/** 415: the body is not JSON. */
export class UnsupportedMediaType extends answered("UnsupportedMediaType") {}

/** 422: the idempotency key was used for another request. */
export class UnprocessableContent extends answered("UnprocessableContent") {}

/** 431: the head of the request is too large. */
export class RequestHeaderFieldsTooLarge extends answered("RequestHeaderFieldsTooLarge") {}

/** 500: a defect of the service; its log has details under the {@link requestId}. */
export class InternalServerError extends answered("InternalServerError") {}

/** 501: the service does not support the request; the message says what does. */
export class NotImplemented extends answered("NotImplemented") {}

/** 502: a service behind this one refused the request, or failed. */
export class BadGateway extends answered("BadGateway") {}

/** 503: the store is unavailable, or the service sheds load. A write may or may not have been applied. */
export class ServiceUnavailable extends answered("ServiceUnavailable") {}

/** 504: a service behind this one did not answer in time. */
export class GatewayTimeout extends answered("GatewayTimeout") {}

/** 507: the disk of the service has no room for the result. */
export class InsufficientStorage extends answered("InsufficientStorage") {}

/** The answer does not come from the service: for example, the error page of a proxy. */
export class InvalidResponse extends answered("InvalidResponse") {}

/** An answer, an event or a frame exceeds the limit of the client, and was not read completely. */
export class ResponseTooLarge extends Error {
  readonly _tag = "ResponseTooLarge"
  override readonly name = "ResponseTooLarge"

  constructor(readonly limitBytes: number) {
    super(`The service sends more than the limit of ${limitBytes} bytes`)
  }
}

/** There is no complete answer. A write may or may not have been applied. */
export class ConnectionFailed extends Error {
  readonly _tag = "ConnectionFailed"
  override readonly name = "ConnectionFailed"

  constructor(
    message: string,
    /** Whether a time limit was exceeded. */
    readonly isTimeout: boolean,
    options?: ErrorOptions
  ) {
    super(message, options)
  }
}

/** The token function failed; `cause` has the reason. */
export class TokenUnavailable extends Error {
  readonly _tag = "TokenUnavailable"
  override readonly name = "TokenUnavailable"
}

const byStatus = {
  400: BadRequest,
  401: Unauthorized,
  403: Forbidden,
  404: NotFound,
  405: MethodNotAllowed,
  409: Conflict,
  410: Gone,
  412: PreconditionFailed,
  413: PayloadTooLarge,
  415: UnsupportedMediaType,
  422: UnprocessableContent,
  431: RequestHeaderFieldsTooLarge,
  500: InternalServerError,
  501: NotImplemented,
  502: BadGateway,
  503: ServiceUnavailable,
  504: GatewayTimeout,
  507: InsufficientStorage
} as const

/** Every error of a call, except the reason of an abort. */
export type ClientError =
  | InstanceType<(typeof byStatus)[keyof typeof byStatus]>
  | InvalidResponse
  | ResponseTooLarge
  | ConnectionFailed
  | TokenUnavailable

/** Whether a thrown value is a {@link ClientError}. */
export const isClientError = (u: unknown): u is ClientError =>
  u instanceof ResponseError ||
  u instanceof ResponseTooLarge ||
  u instanceof ConnectionFailed ||
  u instanceof TokenUnavailable

/** A refusal by the client itself: the request cannot be sent as intended. */
export const refused = (message: string): BadRequest =>
  new BadRequest({ message, status: 400, requestId: undefined, retryAfterMs: undefined })

/** The `Retry-After` of an answer, in seconds or as a date, in milliseconds. */
const retryAfterOf = (headers: Headers): number | undefined => {
  const text = headers.get("retry-after")
  if (text === null) return undefined
  const ms = /^\d+$/.test(text) ? Number(text) * 1000 : Date.parse(text) - Date.now()
  return ms >= 0 ? ms : undefined
}

/** The details in the headers of an answer. */
export const detailsOf = ({ headers, status }: Response, message: string): ErrorDetails => ({
  message,
  status,
  requestId: headers.get("x-request-id") ?? undefined,
  retryAfterMs: retryAfterOf(headers),
  etag: headers.get("etag"),
  epoch: headers.get("kv-epoch"),
  trimmedSeq: headers.get("kv-trimmed-seq")
})

/** The maximum number of bytes read of an error. */
const maxErrorBytes = 64 * 1024

const emptyIfTooLarge = (error: unknown): string => {
  if (error instanceof ResponseTooLarge) return ""
  throw error
}

/** The error of an answer with an error status. */
export const errorOf = async (response: Response): Promise<ClientError> => {
  const message = messageIn(await textOf(response, maxErrorBytes).catch(emptyIfTooLarge))
  const Class = Object.hasOwn(byStatus, response.status)
    ? byStatus[response.status as keyof typeof byStatus]
    : undefined
  if (message !== undefined && Class !== undefined) return new Class(detailsOf(response, message))
  const hint = response.status === 404 ? ", and does not come from the service: baseUrl or prefix may be wrong" : ""
  return new InvalidResponse(detailsOf(response, message ?? `The answer has the status ${response.status}${hint}`))
}

/** An error of this client, or of the one for Effect. */
interface Failed {
  readonly _tag: string
  readonly message: string
}

/** The index of the operation of a batch that an error concerns; `undefined` if there is none. The message has it. */
export const operationIndexOf = ({ message }: Failed): number | undefined => {
  const [, index] = /\boperations\[(\d+)\]/.exec(message) ?? []
  return index === undefined ? undefined : Number(index)
}

/** The message of such an error without the operation, for callers that name it in another way. */
export const withoutOperation = ({ message }: Failed): string =>
  message.replace(/ at operations\[\d+\]|\boperations\[\d+\]\.?/, "")

/** The time of the service, in epoch milliseconds, if it refuses an `expiresAt` that is not later. */
export const serverTimeOf = ({ _tag, message }: Failed): number | undefined => {
  if (_tag !== "BadRequest") return undefined
  const [, now] = /\bexpiresAt must lie in the future: it is \d+, and now is (\d+)$/.exec(message) ?? []
  return now === undefined ? undefined : Number(now)
}

/** The message of an error of the service, `{"error": message}` without other members. */
const messageIn = (text: string): string | undefined => {
  try {
    const { error, ...rest } = JSON.parse(text)
    return typeof error === "string" && Object.keys(rest).length === 0 ? error : undefined
  } catch {
    return undefined
  }
}

/** Reads a body as text. Fails with {@link ResponseTooLarge} if it has more bytes than the limit. */
export const textOf = async ({ body, headers }: Response, limitBytes: number): Promise<string> => {
  if (body === null) return ""
  const reader = body.getReader()
  const decoder = new TextDecoder()
  let text = ""
  let bytes = Number(headers.get("content-encoding") === null && headers.get("content-length"))
  if (bytes <= limitBytes) {
    bytes = 0
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return text + decoder.decode()
      bytes += value.length
      if (bytes > limitBytes) break
      text += decoder.decode(value, { stream: true })
    }
  }
  await reader.cancel()
  throw new ResponseTooLarge(limitBytes)
}

/** The gateway refused a request. */
export class RequestRefused extends Error {
  readonly _tag = "RequestRefused"
  override readonly name = "RequestRefused"

  constructor(
    message: string,
    readonly code: ErrorCode,
    /** Whether the same request may succeed later. */
    readonly retryable: boolean,
    /** Finds the request in the traces and the log of the gateway. Over HTTP it is the id of the request, in the log. */
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
