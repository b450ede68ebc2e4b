/**
 * The errors in answers to clients. On the wire each is a JSON object with the one field `error`; the status
 * distinguishes them.
 */
import * as HttpApiSchema from "@effect/platform/HttpApiSchema"
import { Schema } from "effect"

/** Additional response headers of an error, names in lower case. */
export type ErrorHeaders = Readonly<Record<string, string>>

/** The HTTP status of each error, by its tag. */
const statuses = {
  BadRequest: 400,
  Unauthorized: 401,
  Forbidden: 403,
  NotFound: 404,
  MethodNotAllowed: 405,
  Conflict: 409,
  Gone: 410,
  PreconditionFailed: 412,
  PayloadTooLarge: 413,
  UnsupportedMediaType: 415,
  UnprocessableContent: 422,
  InternalServerError: 500,
  NotImplemented: 501,
  BadGateway: 502,
  ServiceUnavailable: 503,
  GatewayTimeout: 504,
  InsufficientStorage: 507
}

const fields = {
  /** What is wrong, for the client. */
  error: Schema.String,
  headers: Schema.optionalWith(Schema.Record({ key: Schema.String, value: Schema.String }), { default: () => ({}) })
}

interface ErrorClass<Self> {
  new (props: { readonly error: string; readonly headers?: ErrorHeaders }): Self
  readonly _tag: keyof typeof statuses
  readonly ast: Schema.Schema.All["ast"]
}

/** One shape for all errors, so that clients get one type for them; the status has its own description. */
const jsonSchema = {
  type: "object",
  required: ["error"],
  properties: { error: { type: "string", description: "What is wrong." } },
  description: "Every error, whatever its status."
}

/** The schema that an endpoint declares: the class in the program, `{error}` and a status on the wire. */
const wire = <Self extends { readonly error: string }>(
  self: ErrorClass<Self>,
  description: string
): Schema.Schema<Self, { readonly error: string }> =>
  Schema.transform(Schema.Struct({ error: Schema.String }), Schema.typeSchema(Schema.make<Self>(self.ast)), {
    strict: true,
    decode: ({ error }) => new self({ error }),
    encode: ({ error }) => ({ error })
  }).annotations(
    HttpApiSchema.annotations({ status: statuses[self._tag], description, identifier: "Error", jsonSchema })
  )

/** 400: the request is malformed; `error` names the field. */
export class BadRequest extends Schema.TaggedError<BadRequest>()("BadRequest", fields) {
  static readonly Wire = wire(BadRequest, "The request is malformed; the message names the field.")
}

/** 401: the credential is missing or invalid. {@link Unauthorized.answer} has the challenge for clients. */
export class Unauthorized extends Schema.TaggedError<Unauthorized>()("Unauthorized", fields) {
  static readonly Wire = wire(Unauthorized, "The credential is missing or invalid.")
  static readonly answer = () =>
    new Unauthorized({ error: "Unauthorized", headers: { "www-authenticate": 'Bearer realm="causeway"' } })
}

/** 403: the identity may only read, or is limited to another tenant. */
export class Forbidden extends Schema.TaggedError<Forbidden>()("Forbidden", fields) {
  static readonly Wire = wire(Forbidden, "The credential only reads, or is limited to another tenant.")
}

/** 404: no such entry or route. */
export class NotFound extends Schema.TaggedError<NotFound>()("NotFound", fields) {
  static readonly Wire = wire(NotFound, "There is no such entry.")
}

/** 405: the route has other methods, which the header `Allow` lists. */
export class MethodNotAllowed extends Schema.TaggedError<MethodNotAllowed>()("MethodNotAllowed", fields) {
  static readonly Wire = wire(MethodNotAllowed, "The route takes other methods, named in Allow.")
}

/** 409: a request with the same `Idempotency-Key` is still in progress. */
export class Conflict extends Schema.TaggedError<Conflict>()("Conflict", fields) {
  static readonly Wire = wire(Conflict, "The request with this Idempotency-Key is still in progress; try again.")
}

/** 410: the requested change records or route are no longer available. */
export class Gone extends Schema.TaggedError<Gone>()("Gone", fields) {
  static readonly Wire = wire(Gone, "What was asked for is no longer available.")
}

/** 412: a precondition does not hold; nothing was written. `ETag` has the current version of an existing entry. */
export class PreconditionFailed extends Schema.TaggedError<PreconditionFailed>()("PreconditionFailed", fields) {
  static readonly Wire = wire(
    PreconditionFailed,
    "A precondition does not hold; nothing was written. ETag has the current version, where there is one."
  )
}

/** 413: a value, a batch or a body is over its limit; `error` names the limit and the value. */
export class PayloadTooLarge extends Schema.TaggedError<PayloadTooLarge>()("PayloadTooLarge", fields) {
  static readonly Wire = wire(PayloadTooLarge, "The request is over a limit; the message names it and the figure.")
}

/** 415: the body is not JSON in UTF-8, by its headers. */
export class UnsupportedMediaType extends Schema.TaggedError<UnsupportedMediaType>()("UnsupportedMediaType", fields) {
  static readonly Wire = wire(UnsupportedMediaType, "The body is not JSON.")
}

/** 422: the `Idempotency-Key` was used for another request. */
export class UnprocessableContent extends Schema.TaggedError<UnprocessableContent>()("UnprocessableContent", fields) {
  static readonly Wire = wire(UnprocessableContent, "The Idempotency-Key was used for another request.")
}

/** 500: a defect; the log has the detail. */
export class InternalServerError extends Schema.TaggedError<InternalServerError>()("InternalServerError", fields) {
  static readonly Wire = wire(InternalServerError, "A defect of the service; its log has the detail.")
}

/** 503: the store is unavailable, or the service sheds load. `Retry-After` is in seconds. */
export class ServiceUnavailable extends Schema.TaggedError<ServiceUnavailable>()("ServiceUnavailable", fields) {
  static readonly Wire = wire(
    ServiceUnavailable,
    "The store is unavailable, or the service sheds load; Retry-After says when to try again."
  )

  /** The header of every 503 that names a time: seconds after which a client may try again. */
  static readonly retryAfter = (seconds = 1): Readonly<Record<string, string>> => ({ "retry-after": String(seconds) })

  static readonly later = (error: string, seconds?: number): ServiceUnavailable =>
    new ServiceUnavailable({ error, headers: ServiceUnavailable.retryAfter(seconds) })
}

/** 501: the configured store does not support the operation. */
export class NotImplemented extends Schema.TaggedError<NotImplemented>()("NotImplemented", fields) {
  static readonly Wire = wire(NotImplemented, "This service does not offer it; the message says what does.")
}

/** 502: a service behind this one refused the request, or failed. */
export class BadGateway extends Schema.TaggedError<BadGateway>()("BadGateway", fields) {
  static readonly Wire = wire(BadGateway, "A service behind this one refused the request, or failed.")
}

/** 504: a service behind this one did not answer in time. */
export class GatewayTimeout extends Schema.TaggedError<GatewayTimeout>()("GatewayTimeout", fields) {
  static readonly Wire = wire(GatewayTimeout, "A service behind this one did not answer in time.")
}

/** 507: the disk of the service has no room for the operation. */
export class InsufficientStorage extends Schema.TaggedError<InsufficientStorage>()("InsufficientStorage", fields) {
  static readonly Wire = wire(InsufficientStorage, "The disk of the service has no room for it.")
}

/** The answer to a defect; the detail is for the log. */
export const defect = () => new InternalServerError({ error: "Internal server error" })

/** Any error that is answered as `{"error": …}`; its class determines the status. */
export type ApiError =
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
  | InternalServerError
  | NotImplemented
  | BadGateway
  | ServiceUnavailable
  | GatewayTimeout
  | InsufficientStorage

export const bodyOf = (error: string): string => JSON.stringify({ error })

export const statusOf = (error: ApiError): number => statuses[error._tag]

/** Whether a thrown value or a failure is an {@link ApiError}. */
export const isApiError = (u: unknown): u is ApiError =>
  typeof u === "object" && u !== null && "_tag" in u && (u._tag as string) in statuses && "error" in u && "headers" in u
