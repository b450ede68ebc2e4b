/** The errors of calls: those of the plain client, which documents them, as errors of Effect. */
import { Data } from "effect"
import type * as Plain from "../Client.ts"

/** The members of an error of the plain client. */
type Members<E> = Omit<E, "_tag" | "name" | "stack" | "cause" | "isEntry">

type MembersWithCause<E> = Members<E> & { readonly cause?: unknown }

export class BadRequest extends Data.TaggedError("BadRequest")<Members<Plain.BadRequest>> {}
export class Unauthorized extends Data.TaggedError("Unauthorized")<Members<Plain.Unauthorized>> {}
export class Forbidden extends Data.TaggedError("Forbidden")<Members<Plain.Forbidden>> {}
export class NotFound extends Data.TaggedError("NotFound")<Members<Plain.NotFound>> {}
export class MethodNotAllowed extends Data.TaggedError("MethodNotAllowed")<Members<Plain.MethodNotAllowed>> {}
export class Conflict extends Data.TaggedError("Conflict")<Members<Plain.Conflict>> {}
export class Gone extends Data.TaggedError("Gone")<Members<Plain.Gone>> {}
export class PreconditionFailed extends Data.TaggedError("PreconditionFailed")<Members<Plain.PreconditionFailed>> {}
export class PayloadTooLarge extends Data.TaggedError("PayloadTooLarge")<Members<Plain.PayloadTooLarge>> {}
export class UnsupportedMediaType extends Data.TaggedError("UnsupportedMediaType")<
  Members<Plain.UnsupportedMediaType>
> {}
export class UnprocessableContent extends Data.TaggedError("UnprocessableContent")<
  Members<Plain.UnprocessableContent>
> {}
export class RequestHeaderFieldsTooLarge extends Data.TaggedError("RequestHeaderFieldsTooLarge")<
  Members<Plain.RequestHeaderFieldsTooLarge>
> {}
export class InternalServerError extends Data.TaggedError("InternalServerError")<Members<Plain.InternalServerError>> {}
export class NotImplemented extends Data.TaggedError("NotImplemented")<Members<Plain.NotImplemented>> {}
export class BadGateway extends Data.TaggedError("BadGateway")<Members<Plain.BadGateway>> {}
export class ServiceUnavailable extends Data.TaggedError("ServiceUnavailable")<Members<Plain.ServiceUnavailable>> {}
export class GatewayTimeout extends Data.TaggedError("GatewayTimeout")<Members<Plain.GatewayTimeout>> {}
export class InsufficientStorage extends Data.TaggedError("InsufficientStorage")<Members<Plain.InsufficientStorage>> {}
export class InvalidResponse extends Data.TaggedError("InvalidResponse")<Members<Plain.InvalidResponse>> {}
export class ResponseTooLarge extends Data.TaggedError("ResponseTooLarge")<Members<Plain.ResponseTooLarge>> {}
export class ConnectionFailed extends Data.TaggedError("ConnectionFailed")<MembersWithCause<Plain.ConnectionFailed>> {}
export class TokenUnavailable extends Data.TaggedError("TokenUnavailable")<MembersWithCause<Plain.TokenUnavailable>> {}
export class RequestRefused extends Data.TaggedError("RequestRefused")<Members<Plain.RequestRefused>> {}
export class AnswerLost extends Data.TaggedError("AnswerLost")<Members<Plain.AnswerLost>> {}
export class ConnectionClosed extends Data.TaggedError("ConnectionClosed")<Members<Plain.ConnectionClosed>> {}
