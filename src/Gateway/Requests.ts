/**
 * The requests of clients: how they are decoded, the calls of `Sessions` that they are, and the answers to failed ones.
 */
import { type Context, Effect, Either, Option, ParseResult, Schema } from "effect"
import { MiB } from "../base/Bytes.ts"
import { excess, illFormedAt, isObject, mayBeIllFormed } from "../base/Json/Parsing.ts"
import { describe } from "../Http/Contract.ts"
import type { StoreBusy, StoreUnavailable } from "../Kv/Store.ts"
import type { AgentPlatformConnectionError, FileCallError } from "../Upstream/AgentPlatform.ts"
import { transientStatuses } from "../Upstream/Resilience/Retries.ts"
import { FairPool } from "./FairPool.ts"
import type { Answer } from "./Protocol/Answer.ts"
import type { ErrorCode } from "./Protocol/Codes.ts"
import { RequestId, type Session } from "./Protocol/Fields.ts"
import { frameBytes, jsonDepth, jsonMembers } from "./Protocol/Limits.ts"
import { Request, type RequestOf, requestTypes } from "./Protocol/Request.ts"
import type {
  ActivationError,
  Caller,
  CreationError,
  InvalidCursor,
  SessionConflict,
  Sessions,
  SessionsBusy,
  SessionTooLarge
} from "./Sessions.ts"

/** Why a frame is not a request. The message is for the client. */
export interface InvalidRequest {
  /** The frame's id, if it could be read. */
  readonly id: string | undefined
  readonly code: ErrorCode
  readonly message: string
}

const frameShape = { levels: jsonDepth + 1, members: jsonMembers }

/** Maximum characters of a frame that is parsed only for its id. */
export const smallFrame = 16 * 1024

const knownTypes: ReadonlySet<unknown> = new Set(requestTypes)

const readId = Schema.decodeUnknownOption(RequestId)

const readRequest = Schema.decodeUnknownEither(Request, { errors: "all" })

const shorten = (text: string): string => (text.length > 64 ? `${text.slice(0, 64)}…` : text)

const problemOfType = (type: unknown): string | undefined => {
  if (type === undefined) return "type: is missing"
  if (typeof type !== "string") return "type: must be text"
  return knownTypes.has(type) ? undefined : `type: there is no request ${JSON.stringify(shorten(type))}`
}

const refuse = (message: string, id?: string, code: ErrorCode = "bad_request"): Either.Either<never, InvalidRequest> =>
  Either.left({ id, code, message })

/** The message of the parser is dropped because it repeats a part of the frame, which may contain secrets. */
const parse = Option.liftThrowable((text: string): unknown => JSON.parse(text))

/**
 * Decodes a frame from a client. Left is the reason why it is invalid. It never throws.
 *
 * The id of an invalid frame is returned for the answer, unless the frame is large and exceeds the limits of its shape.
 */
export const decodeRequest = (text: string): Either.Either<Request, InvalidRequest> => {
  // UTF-8 has at least one byte for each UTF-16 code unit.
  if (text.length > frameBytes) {
    return refuse(`The frame has at least ${text.length} bytes; the limit is ${frameBytes}`, undefined, "too_large")
  }
  // Checked before parsing, because a large frame of brackets takes long to parse. Its id is not known then.
  const problem = excess(text, frameShape)
  if (problem !== undefined && text.length > smallFrame) return refuse(`Invalid request: the frame ${problem}`)
  const parsed = parse(text)
  if (Option.isNone(parsed)) return refuse("Invalid request: the frame is not JSON")
  const frame = parsed.value
  if (!isObject(frame)) return refuse("Invalid request: the frame is not a JSON object")
  const id = Option.getOrUndefined(readId(frame.id))
  if (problem !== undefined) return refuse(`Invalid request: the frame ${problem}`, id)
  const wrongType = problemOfType(frame.type)
  if (wrongType !== undefined) return refuse(`Invalid request: ${wrongType}`, id)
  const illFormed = mayBeIllFormed(text) ? illFormedAt(frame) : undefined
  if (illFormed !== undefined) {
    return refuse(`Invalid request: ${shorten(illFormed.join("."))}: must be Unicode, and has a lone surrogate`, id)
  }
  const decoded = readRequest(frame)
  return Either.isRight(decoded)
    ? Either.right(decoded.right)
    : refuse(describe(ParseResult.ArrayFormatter.formatErrorSync(decoded.left)), id)
}

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
  | CreationError
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
    case "SessionExists":
      return {
        code: "conflict",
        message: `The id ${JSON.stringify(error.sessionId)} is that of a session that is being created or deleted`,
        retryable: true
      }
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
    case "InvalidSessionId":
      return { code: "bad_request", message: error.message }
    case "StoreBusy":
      return { code: "rate_limited", message: "Too many requests are waiting for the store" }
    case "StoreUnavailable":
      return { code: "internal", message: "Store unavailable", retryable: true }
  }
}

/** The answer to a defect. */
export const defect: Failure = { code: "internal", message: "Internal error" }

/** Requests whose answers may be large. */
export const fileRequests: ReadonlySet<Request["type"]> = new Set([
  "list_files",
  "read_file",
  "file_history",
  "file_at_iteration"
])

/** Maximum bytes of the answer to a file call, which is the limit of the platform's client. */
const fileBytes = { list: 8 * MiB, content: 32 * MiB } as const

/** Maximum bytes of the answer to a file request. */
export const largestAnswer = (type: Request["type"]): number =>
  type === "read_file" || type === "file_at_iteration" ? fileBytes.content : fileBytes.list

/** The memory, in bytes. Calls in progress cannot be reclaimed. */
export const makeFileMemory = (capacity: number): FairPool =>
  new FairPool({ name: "memory for files", capacity, maxOfOne: Math.max(capacity * 0.75, fileBytes.content) })
