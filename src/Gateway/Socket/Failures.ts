/**
 * What the failures of sessions look like to a client.
 */
import type { StoreBusy, StoreUnavailable } from "../../Kv/Store.ts"
import type { AgentPlatformConnectionError, FileCallError } from "../../Upstream/AgentPlatform.ts"
import type { ErrorCode } from "../Protocol/ErrorCode.ts"
import type { ActivationError, InvalidCursor, SessionConflict, SessionsBusy, SessionTooLarge } from "../Sessions.ts"

/** The errors of requests. */
export type RequestError =
  | ActivationError
  | FileCallError
  | InvalidCursor
  | SessionConflict
  | SessionTooLarge
  | SessionsBusy
  | StoreBusy
  | StoreUnavailable

/** The content of an error answer. */
export interface Failure {
  readonly code: ErrorCode
  readonly message: string
  /** Where absent, the code decides. */
  readonly retryable?: boolean
}

/** A failure that is answered as it is. */
export class Refused {
  constructor(readonly failure: Failure) {}
}

const unavailableStatuses: ReadonlySet<number> = new Set([408, 429, 502, 503, 504])

const ofPlatform = ({ reason, statusCode, message }: AgentPlatformConnectionError): Failure => {
  switch (reason) {
    case "connection":
    case "circuit_open":
      return { code: "upstream_unavailable", message }
    case "not_configured":
      return { code: "upstream_unavailable", message, retryable: false }
    case "timeout":
      return { code: "timeout", message }
    case "too_large":
      return { code: "too_large", message }
    case "malformed":
      return { code: "upstream_error", message }
    case "status":
      if (statusCode === 404 || statusCode === 410) return { code: "not_found", message }
      if (statusCode !== undefined && unavailableStatuses.has(statusCode)) {
        return { code: "upstream_unavailable", message }
      }
      return { code: "upstream_error", message, retryable: statusCode !== undefined && statusCode >= 500 }
  }
}

/** The answer to a failed request. The reasons of the store are for the log. */
export const failureOf = (error: RequestError): Failure => {
  switch (error._tag) {
    case "SessionNotFound":
      return { code: "not_found", message: `There is no session ${JSON.stringify(error.sessionId)}` }
    case "SessionConflict":
      return { code: "conflict", message: error.message }
    case "SessionNotActive":
      return { code: "session_not_active", message: error.message, retryable: error.mayPass === true }
    case "SessionTooLarge":
      return { code: "too_large", message: error.message }
    case "SessionsBusy":
      return { code: "rate_limited", message: error.message }
    case "ActivationTimeout":
      return { code: "timeout", message: error.message }
    case "AgentPlatformConnectionError":
      return ofPlatform(error)
    case "InvalidCursor":
    case "InvalidFileRequest":
      return { code: "bad_request", message: error.message }
    case "StoreBusy":
      return { code: "rate_limited", message: "Too many requests are waiting for the store" }
    case "StoreUnavailable":
      return { code: "internal", message: "Store unavailable", retryable: true }
  }
}

/** The answer to a defect. */
export const defect: Failure = { code: "internal", message: "Internal error" }
