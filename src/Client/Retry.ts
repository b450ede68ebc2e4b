import type { ClientError } from "./Errors.ts"

/** Whether the same request may succeed later. */
export const isTransient = (error: ClientError): boolean => {
  switch (error._tag) {
    case "ConnectionFailed":
    case "TokenUnavailable":
    case "Conflict":
    case "InternalServerError":
    case "ServiceUnavailable":
      return true
    case "InvalidResponse":
      return error.status < 400 || error.status === 408 || error.status === 429 || error.status >= 500
    default:
      return false
  }
}
