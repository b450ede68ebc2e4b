/**
 * Requests as calls of the sessions; what concerns the connection itself is not here.
 */
import { type Context, Effect } from "effect"
import type { Answer } from "../Protocol/Answer.ts"
import type { Request, RequestOf } from "../Protocol/Request.ts"
import type { Session } from "../Protocol/Session.ts"
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
