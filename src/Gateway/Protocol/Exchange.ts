import type { Answer } from "./Answer.ts"
import type { RequestType } from "./Request.ts"

/** The names of answers. */
export type AnswerType = Answer["type"]

/** Which answer each request gets where it does not fail; one that fails gets `error`. */
export const answerTypes = {
  create_session: "session_created",
  list_sessions: "session_list",
  get_session: "session",
  start_session: "session",
  stop_session: "session",
  delete_session: "session_deleted",
  subscribe: "subscribed",
  unsubscribe: "unsubscribed",
  send_message: "accepted",
  interrupt_turn: "accepted",
  answer: "accepted",
  list_files: "file_list",
  read_file: "file_content",
  file_history: "file_history_list",
  file_at_iteration: "file_content",
  ping: "pong"
} as const satisfies Readonly<Record<RequestType, AnswerType>>

/** The answer that a request gets where it does not fail. */
export type AnswerTo<Type extends RequestType> = Extract<Answer, { readonly type: (typeof answerTypes)[Type] }>
