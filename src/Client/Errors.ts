/**
 * Why a call fails. Each error has its own `_tag`, so that a `switch` over it is exhaustive.
 */

/** What an answer tells of an error. */
export interface ErrorDetails {
  readonly message: string
  readonly status: number
  /** The name of the request in the log of the service. */
  readonly requestId: string | undefined
  /** How long the service asks to wait before the next try. */
  readonly retryAfterMs: number | undefined
  readonly etag?: string | null
  readonly epoch?: string | null
  readonly trimmedSeq?: string | null
}

/** The service, or something before it, has answered with an error. */
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

/** 400: the request is malformed; the message names the field. */
export class BadRequest extends ResponseError {
  readonly _tag = "BadRequest"
}

/** 401: the credential is missing or wrong. */
export class Unauthorized extends ResponseError {
  readonly _tag = "Unauthorized"
}

/** 403: the credential only reads. */
export class Forbidden extends ResponseError {
  readonly _tag = "Forbidden"
}

/** 404: the service has no such route: `baseUrl` or `prefix` is wrong. An absent entry is no error. */
export class NotFound extends ResponseError {
  readonly _tag = "NotFound"

  /** Whether it is an entry that is absent, and not the route. */
  get isEntry(): boolean {
    return this.message === "Not found"
  }
}

/** 405: the route takes other methods. */
export class MethodNotAllowed extends ResponseError {
  readonly _tag = "MethodNotAllowed"
}

/** 409: the request with this idempotency key is still in progress. */
export class Conflict extends ResponseError {
  readonly _tag = "Conflict"
}

/** 410: the changes that were asked for are no longer kept, or are those of another log. */
export class Gone extends ResponseError {
  readonly _tag = "Gone"
  /** The epoch of the log that the service has, if it has said so. */
  readonly epoch: string | undefined
  /** The last change that is no longer kept, fit to be the next `after`; `undefined` for another log. */
  readonly trimmedSeq: number | undefined

  constructor(details: ErrorDetails) {
    super(details)
    this.epoch = details.epoch ?? undefined
    this.trimmedSeq = /^\d{1,16}$/.test(details.trimmedSeq ?? "") ? Number(details.trimmedSeq) : undefined
  }
}

/** 412: a precondition does not hold; nothing was written. */
export class PreconditionFailed extends ResponseError {
  readonly _tag = "PreconditionFailed"
  /** The version of the entry, 0 where it is absent: fit to be the next `ifVersion`. */
  readonly currentVersion: number | undefined
  /** Which operation of a batch was refused. */
  readonly operation: number | undefined

  constructor(details: ErrorDetails) {
    super(details)
    // The answer to a batch has no ETag; its message tells the same.
    const stated = /(?:operations\[(\d+)\])?: the entry is (?:absent|at version (\d+))/.exec(details.message)
    const version = /^"(\d+)"$/.exec(details.etag ?? "")?.[1] ?? stated?.[2] ?? (stated === null ? undefined : 0)
    this.currentVersion = version === undefined ? undefined : Number(version)
    this.operation = stated?.[1] === undefined ? undefined : Number(stated[1])
  }
}

/** 413: a value, a batch or a body is over its limit; the message names it and the figure. */
export class PayloadTooLarge extends ResponseError {
  readonly _tag = "PayloadTooLarge"
}

/** 415: the body is not JSON. */
export class UnsupportedMediaType extends ResponseError {
  readonly _tag = "UnsupportedMediaType"
}

/** 422: the idempotency key was used for another request. */
export class UnprocessableContent extends ResponseError {
  readonly _tag = "UnprocessableContent"
}

/** 431: the head of the request is too large. */
export class RequestHeaderFieldsTooLarge extends ResponseError {
  readonly _tag = "RequestHeaderFieldsTooLarge"
}

/** 500: a defect of the service; its log has the detail under the {@link requestId}. */
export class InternalServerError extends ResponseError {
  readonly _tag = "InternalServerError"
}

/** 501: the service does not offer it; the message says what does. */
export class NotImplemented extends ResponseError {
  readonly _tag = "NotImplemented"
}

/** 503: the store is unavailable, or the service sheds load. A write may or may not have been applied. */
export class ServiceUnavailable extends ResponseError {
  readonly _tag = "ServiceUnavailable"
}

/** 507: the disk of the service has no room for what was asked for. */
export class InsufficientStorage extends ResponseError {
  readonly _tag = "InsufficientStorage"
}

/** The answer is none of the service, such as the error page of a proxy. */
export class InvalidResponse extends ResponseError {
  readonly _tag = "InvalidResponse"
}

/** An answer, an event or a frame is over the client's own limit, and was not read to its end. */
export class ResponseTooLarge extends Error {
  readonly _tag = "ResponseTooLarge"
  override readonly name = "ResponseTooLarge"

  constructor(readonly limitBytes: number) {
    super(`The service sends more than the limit of ${limitBytes} bytes`)
  }
}

/** There is no whole answer. A write may or may not have been applied. */
export class ConnectionFailed extends Error {
  readonly _tag = "ConnectionFailed"
  override readonly name = "ConnectionFailed"

  constructor(
    message: string,
    /** Whether nothing came for too long. */
    readonly isTimeout: boolean,
    options?: ErrorOptions
  ) {
    super(message, options)
  }
}

/** The token could not be had; `cause` has the reason. */
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
  503: ServiceUnavailable,
  507: InsufficientStorage
} as const

/** Every error that a call can fail with, but for the reason of an abort. */
export type ClientError =
  | InstanceType<(typeof byStatus)[keyof typeof byStatus]>
  | InvalidResponse
  | ResponseTooLarge
  | ConnectionFailed
  | TokenUnavailable

/** Whether something that was thrown is a {@link ClientError}. */
export const isClientError = (u: unknown): u is ClientError =>
  u instanceof ResponseError ||
  u instanceof ResponseTooLarge ||
  u instanceof ConnectionFailed ||
  u instanceof TokenUnavailable

/** A refusal by the client itself: the request would not reach the service as it is meant. */
export const refused = (message: string): BadRequest =>
  new BadRequest({ message, status: 400, requestId: undefined, retryAfterMs: undefined })

/** The `Retry-After` of an answer, which is in seconds or a date, in milliseconds. */
const retryAfterOf = (headers: Headers): number | undefined => {
  const text = headers.get("retry-after")
  if (text === null) return undefined
  const ms = /^\d+$/.test(text) ? Number(text) * 1000 : Date.parse(text) - Date.now()
  return ms >= 0 ? ms : undefined
}

/** What an answer tells beside its body. */
export const detailsOf = ({ headers, status }: Response, message: string): ErrorDetails => ({
  message,
  status,
  requestId: headers.get("x-request-id") ?? undefined,
  retryAfterMs: retryAfterOf(headers),
  etag: headers.get("etag"),
  epoch: headers.get("kv-epoch"),
  trimmedSeq: headers.get("kv-trimmed-seq")
})

/** The most bytes of an error that are read. */
const maxErrorBytes = 64 * 1024

const emptyIfTooLarge = (error: unknown): string => {
  if (error instanceof ResponseTooLarge) return ""
  throw error
}

/** The error that an answer is. */
export const errorOf = async (response: Response): Promise<ClientError> => {
  const message = messageIn(await textOf(response, maxErrorBytes).catch(emptyIfTooLarge))
  if (message !== undefined) {
    for (const [status, Class] of Object.entries(byStatus)) {
      if (Number(status) === response.status) return new Class(detailsOf(response, message))
    }
  }
  const hint = response.status === 404 ? ", and is not of the service: baseUrl or prefix may be wrong" : ""
  return new InvalidResponse(detailsOf(response, message ?? `The answer has the status ${response.status}${hint}`))
}

/** An error of this client, or of the one for Effect. */
interface Failed {
  readonly _tag: string
  readonly message: string
}

/**
 * Which operation of a batch an error is about, as its index; `undefined` where it names none. An answer has nothing but
 * its message to tell that.
 */
export const operationIndexOf = ({ message }: Failed): number | undefined => {
  const [, index] = /\boperations\[(\d+)\]/.exec(message) ?? []
  return index === undefined ? undefined : Number(index)
}

/** The message of such an error without the operation, for those who name it otherwise. */
export const withoutOperation = ({ message }: Failed): string =>
  message.replace(/ at operations\[\d+\]|\boperations\[\d+\]\.?/, "")

/** The time of the service, in epoch milliseconds, where it refuses an `expiresAt` that is not later. */
export const serverTimeOf = ({ _tag, message }: Failed): number | undefined => {
  if (_tag !== "BadRequest") return undefined
  const [, now] = /\bexpiresAt must lie in the future: it is \d+, and now is (\d+)$/.exec(message) ?? []
  return now === undefined ? undefined : Number(now)
}

/** The message of an error of the service, `{"error": message}` and nothing else. */
const messageIn = (text: string): string | undefined => {
  try {
    const { error, ...rest } = JSON.parse(text)
    return typeof error === "string" && Object.keys(rest).length === 0 ? error : undefined
  } catch {
    return undefined
  }
}

/** Reads a body as text. One of more bytes than the limit is given up, and fails with {@link ResponseTooLarge}. */
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
