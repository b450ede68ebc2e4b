/**
 * Requests as calls of `Sessions`, and the answers to failed ones.
 */
import { type Context, Effect } from "effect"
import type { StoreBusy, StoreUnavailable } from "../Kv/Store.ts"
import type { AgentPlatformConnectionError, FileCallError } from "../Upstream/AgentPlatform.ts"
import { transientStatuses } from "../Upstream/Resilience/Retries.ts"
import type { Answer } from "./Protocol/Answer.ts"
import type { ErrorCode } from "./Protocol/Codes.ts"
import type { Session } from "./Protocol/Fields.ts"
import type { Request, RequestOf } from "./Protocol/Request.ts"
import type {
  ActivationError,
  Caller,
  InvalidCursor,
  SessionConflict,
  Sessions,
  SessionsBusy,
  SessionTooLarge
} from "./Sessions.ts"

/** Requests that do not concern the connection itself. */
export type Call = Exclude<Request, RequestOf<"subscribe" | "unsubscribe" | "ping">>

/** Executes a request. */
export const execute = (
  sessions: Context.Tag.Service<Sessions>,
  caller: Caller,
  request: Call
): Effect.Effect<Answer, RequestError> => {
  const { id } = request
  const answerSession = Effect.map((session: Session): Answer => ({ type: "session", id, session }))
  const accept = Effect.map((turnId: string): Answer => ({ type: "accepted", id, turnId }))
  switch (request.type) {
    case "create_session":
      return Effect.map(sessions.create(caller, request), session => ({ type: "session_created", id, session }))
    case "list_sessions":
      return Effect.map(sessions.list(caller, request), page => ({ type: "session_list", id, ...page }))
    case "get_session":
      return answerSession(sessions.get(caller, request.sessionId))
    case "start_session":
      return answerSession(sessions.start(caller, request.sessionId, request))
    case "stop_session":
      return answerSession(sessions.stop(caller, request.sessionId))
    case "delete_session": {
      const { sessionId } = request
      return Effect.as(sessions.remove(caller, sessionId), { type: "session_deleted", id, sessionId })
    }
    case "send_message":
      return accept(sessions.send(caller, request.sessionId, request.content, request.clientMessageId))
    case "interrupt_turn":
      return accept(sessions.interrupt(caller, request.sessionId, request.turnId))
    case "answer": {
      const { answer, clientMessageId, requestId, sessionId } = request
      return Effect.as(sessions.answer(caller, sessionId, requestId, answer, clientMessageId), { type: "accepted", id })
    }
    case "list_files":
      return Effect.map(sessions.listFiles(caller, request.sessionId, request), entries => ({
        type: "file_list",
        id,
        entries
      }))
    case "file_history":
      return Effect.map(sessions.fileHistory(caller, request), iterations => ({
        type: "file_history_list",
        id,
        path: request.path,
        iterations
      }))
    case "read_file":
    case "file_at_iteration": {
      const read =
        request.type === "read_file"
          ? sessions.readFile(caller, request)
          : sessions.fileAtIteration(caller, request, request.iteration)
      return Effect.map(read, content => ({ type: "file_content", id, path: request.path, ...content }))
    }
  }
}

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
  /** If absent, the default of the code. */
  readonly retryable?: boolean
}

/** A failure that is answered unchanged. */
export class Refused {
  constructor(readonly failure: Failure) {}
}

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
      if (statusCode !== undefined && transientStatuses.has(statusCode)) {
        return { code: "upstream_unavailable", message }
      }
      return { code: "upstream_error", message, retryable: statusCode !== undefined && statusCode >= 500 }
  }
}

/** The answer to a failed request. It does not contain the reasons of the store, which are logged. */
export const failureOf = (error: RequestError): Failure => {
  switch (error._tag) {
    case "SessionNotFound":
      return { code: "not_found", message: `There is no session ${JSON.stringify(error.sessionId)}` }
    case "SessionConflict":
      return { code: "conflict", message: error.message }
    case "SessionElsewhere":
      return {
        code: "conflict",
        message:
          "The session belongs to another node of the service: connect to that one. " +
          "If it has stopped, this node takes over the session within 30 seconds",
        retryable: true
      }
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
