/**
 * Requests as calls of the sessions; what concerns the connection itself is not here.
 */
import { type Context, Effect } from "effect"
import type { Answer } from "../Protocol/Answer.ts"
import type { Request, RequestOf } from "../Protocol/Request.ts"
import type { Caller, Sessions } from "../Sessions.ts"
import type { RequestError } from "./Failures.ts"

/** Requests that do not concern the connection itself. */
export type Call = Exclude<Request, RequestOf<"subscribe" | "unsubscribe" | "ping">>

/** Carries a request out. */
export const carryOut = (
  sessions: Context.Tag.Service<Sessions>,
  caller: Caller,
  request: Call
): Effect.Effect<Answer, RequestError> => {
  const { id } = request
  switch (request.type) {
    case "create_session":
      return Effect.map(sessions.create(caller, request), session => ({ type: "session_created", id, session }))
    case "list_sessions":
      return Effect.map(sessions.list(caller, request), page => ({ type: "session_list", id, ...page }))
    case "get_session":
      return Effect.map(sessions.get(caller, request.sessionId), session => ({ type: "session", id, session }))
    case "start_session":
      return Effect.map(sessions.start(caller, request.sessionId, request), session => ({
        type: "session",
        id,
        session
      }))
    case "stop_session":
      return Effect.map(sessions.stop(caller, request.sessionId), session => ({ type: "session", id, session }))
    case "delete_session":
      return Effect.as(sessions.remove(caller, request.sessionId), {
        type: "session_deleted",
        id,
        sessionId: request.sessionId
      })
    case "send_message":
      return Effect.map(sessions.send(caller, request.sessionId, request.content, request.clientMessageId), turnId => ({
        type: "accepted",
        id,
        turnId
      }))
    case "interrupt_turn":
      return Effect.map(sessions.interrupt(caller, request.sessionId, request.turnId), turnId => ({
        type: "accepted",
        id,
        turnId
      }))
    case "answer":
      return Effect.as(
        sessions.answer(caller, request.sessionId, request.requestId, request.answer, request.clientMessageId),
        {
          type: "accepted",
          id
        }
      )
    case "list_files":
      return Effect.map(sessions.listFiles(caller, request.sessionId, request), entries => ({
        type: "file_list",
        id,
        entries
      }))
    case "read_file":
      return Effect.map(sessions.readFile(caller, request), content => ({
        type: "file_content",
        id,
        path: request.path,
        ...content
      }))
    case "file_history":
      return Effect.map(sessions.fileHistory(caller, request), iterations => ({
        type: "file_history_list",
        id,
        path: request.path,
        iterations
      }))
    case "file_at_iteration":
      return Effect.map(sessions.fileAtIteration(caller, request, request.iteration), content => ({
        type: "file_content",
        id,
        path: request.path,
        ...content
      }))
  }
}
