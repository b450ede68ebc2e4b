/** The frames of requests and answers as plain types. A test compares them with the schemas of the contract. */
import type { ErrorCode, FileContent, FileEntry, FileIteration, Session } from "./SessionModel.ts"

type OfSession<Type extends string, Fields = unknown> = { readonly type: Type; readonly sessionId: string } & Fields
type Variables = { readonly [name: string]: string }

/** A request without its id. */
export type RequestFrame =
  | {
      readonly type: "create_session"
      readonly agentType: string
      readonly title?: string
      readonly deployment?: unknown
      readonly environment?: Variables
      readonly secrets?: Variables
    }
  | { readonly type: "list_sessions"; readonly limit?: number; readonly cursor?: string }
  | OfSession<"get_session">
  | OfSession<
      "start_session",
      { readonly secrets?: Variables; readonly environment?: Variables; readonly deployment?: unknown }
    >
  | OfSession<"stop_session">
  | OfSession<"delete_session">
  | OfSession<"subscribe", { readonly afterSeq?: number; readonly epoch?: string }>
  | OfSession<"unsubscribe">
  | OfSession<"send_message", { readonly content: string; readonly clientMessageId?: string }>
  | OfSession<"interrupt_turn", { readonly turnId?: string }>
  | OfSession<"answer", { readonly requestId: string; readonly answer: unknown; readonly clientMessageId?: string }>
  | OfSession<"list_files", { readonly path?: string; readonly depth?: number }>
  | OfSession<"read_file", { readonly path: string }>
  | OfSession<"file_history", { readonly path: string }>
  | OfSession<"file_at_iteration", { readonly path: string; readonly iteration: number }>
  | { readonly type: "ping" }

type To<Type extends string, Fields> = { readonly type: Type; readonly id: string } & Fields

/** An answer to a request. */
export type Answer =
  | To<"session_created", { readonly session: Session }>
  | To<"session_list", { readonly sessions: ReadonlyArray<Session>; readonly cursor?: string }>
  | To<"session", { readonly session: Session }>
  | To<"session_deleted", { readonly sessionId: string }>
  | To<
      "subscribed",
      { readonly session: Session; readonly epoch: string; readonly headSeq: number; readonly recovered: boolean }
    >
  | To<"unsubscribed", { readonly sessionId: string }>
  | To<"accepted", { readonly turnId?: string }>
  | To<"file_list", { readonly entries: ReadonlyArray<FileEntry> }>
  | To<"file_content", FileContent>
  | To<"file_history_list", { readonly path: string; readonly iterations: ReadonlyArray<FileIteration> }>
  | To<"pong", { readonly timestamp: number }>
  | {
      readonly type: "error"
      readonly id?: string
      /** The session whose subscription has ended with this error; there is no `id` then. */
      readonly sessionId?: string
      readonly error: {
        readonly code: ErrorCode
        readonly message: string
        readonly retryable: boolean
        readonly traceId: string
      }
    }

/** An answer by its type. */
export type AnswerOf<Type extends Answer["type"]> = Extract<Answer, { readonly type: Type }>
