/** The data of the gateway as plain types. A test compares them with the schemas of the contract. */
import type { Conversation } from "./Conversation/Conversation.ts"

/** The state of the instance of a session. */
export type SessionState = "inactive" | "activating" | "active" | "reconnecting" | "deactivating" | "error"

/** A session; times are epoch milliseconds. */
export interface Session {
  readonly id: string
  readonly tenant: string
  readonly agentType: string
  /** Empty until the session has a title. */
  readonly title: string
  readonly state: SessionState
  /** The instance of the platform, or `null` if there is none. */
  readonly instanceId: string | null
  readonly createdAt: number
  readonly updatedAt: number
  /** Identifies the history. It changes only when the history is lost or reset. */
  readonly epoch: string
  /** The `seq` of the newest event, or 0. */
  readonly headSeq: number
  /** The names of lost secrets; `start` must provide them again. */
  readonly missingSecrets?: ReadonlyArray<string>
  /** Other lost configuration; `start` must provide it again. */
  readonly missingConfiguration?: ReadonlyArray<"environment" | "deployment">
}

/** A file or a directory of a workspace. */
export interface FileEntry {
  readonly path: string
  readonly type?: "file" | "directory"
  /** Bytes. */
  readonly size?: number
  readonly iteration?: number
  readonly timestamp?: number
  readonly hash?: string
}

/** A version of a file. */
export interface FileIteration {
  readonly iteration: number
  readonly timestamp: number
  /** Bytes. */
  readonly size: number
  readonly hash: string
}

/** The content of a file. */
export interface FileContent {
  readonly path: string
  readonly content: string
  /** The encoding of the file in `content`. */
  readonly encoding: "utf-8" | "base64"
  readonly iteration?: number
  /** Bytes of the file. */
  readonly size?: number
  readonly hash?: string
}

/** Why the gateway refuses a request. */
export type ErrorCode =
  | "bad_request"
  | "unauthorized"
  | "forbidden"
  | "not_found"
  | "conflict"
  | "too_large"
  | "rate_limited"
  | "session_not_active"
  | "upstream_unavailable"
  | "upstream_error"
  | "timeout"
  | "inference_unavailable"
  | "internal"

/** The members of every event in addition to its body. */
export interface EventEnvelope {
  readonly sessionId: string
  /** The number of the event in its session, from 1, without gaps. */
  readonly seq: number
  /** When the gateway received the event, in epoch milliseconds. */
  readonly timestamp: number
  readonly traceId: string
}

type Body<Type extends string, Fields = unknown> = { readonly type: Type } & Fields
type OfTurn<Type extends string, Fields = unknown> = Body<Type, Fields> & { readonly turnId?: string }
type Turn = { readonly turnId: string }
type Call = { readonly callId: string }
type Text = { readonly text: string }
type Failure = { readonly code: string; readonly message: string; readonly retryable: boolean }

/** An event without its envelope. */
export type EventBody =
  | Body<"session_state", { readonly state: SessionState; readonly reason?: string }>
  | Body<"turn_started", Turn & { readonly content?: string; readonly sub?: string; readonly clientMessageId?: string }>
  | Body<"turn_completed", Turn>
  | Body<"turn_errored", Turn & Failure>
  | Body<"turn_interrupted", Turn & { readonly reason?: string }>
  | OfTurn<"text_start", { readonly messageId: string; readonly role?: string }>
  | OfTurn<"text_delta", { readonly messageId?: string } & Text>
  | OfTurn<"text_end", { readonly messageId: string; readonly text?: string }>
  | OfTurn<"thinking_start", { readonly thinkingId: string }>
  | OfTurn<"thinking_delta", { readonly thinkingId: string } & Text>
  | OfTurn<"thinking_end", { readonly thinkingId: string; readonly text?: string }>
  | OfTurn<"tool_call_start", Call & { readonly name: string }>
  | OfTurn<"tool_call_delta", Call & Text>
  | OfTurn<"tool_call", Call & { readonly name: string; readonly args?: unknown }>
  | OfTurn<"tool_progress", Call & { readonly message?: string; readonly progress?: number }>
  | OfTurn<"tool_result", Call & { readonly result?: unknown }>
  | OfTurn<"tool_error", Call & { readonly code?: string; readonly message: string }>
  | OfTurn<
      "question_requested",
      { readonly requestId: string; readonly question: string; readonly options?: ReadonlyArray<unknown> }
    >
  | OfTurn<"question_resolved", { readonly requestId: string; readonly answer?: unknown }>
  | OfTurn<
      "approval_requested",
      { readonly requestId: string; readonly action: string; readonly description?: string; readonly details?: unknown }
    >
  | OfTurn<"approval_resolved", { readonly requestId: string; readonly approved: boolean; readonly reason?: string }>
  | OfTurn<"terminal_opened", { readonly terminalId: string; readonly command?: string; readonly cwd?: string }>
  | OfTurn<"terminal_output", { readonly terminalId: string; readonly stream?: string } & Text>
  | OfTurn<"terminal_exited", { readonly terminalId: string; readonly exitCode?: number; readonly signal?: string }>
  | OfTurn<
      "file_changed",
      {
        readonly change: "created" | "modified" | "deleted" | "renamed"
        readonly path: string
        readonly previousPath?: string
        readonly iteration?: number
        readonly size?: number
        readonly hash?: string
      }
    >
  | OfTurn<"plan_updated", { readonly plan: unknown }>
  | OfTurn<"step_started", { readonly stepId: string; readonly title?: string }>
  | OfTurn<"step_completed", { readonly stepId: string; readonly title?: string; readonly status?: string }>
  | OfTurn<"subagent_started", { readonly subagentId: string; readonly agentType?: string; readonly task?: string }>
  | OfTurn<
      "subagent_completed",
      { readonly subagentId: string; readonly agentType?: string; readonly result?: unknown }
    >
  | OfTurn<
      "artifact_created",
      { readonly artifactId: string; readonly name?: string; readonly mimeType?: string; readonly uri?: string }
    >
  | OfTurn<"checkpoint_created", { readonly checkpointId: string; readonly label?: string }>
  | OfTurn<"state_snapshot", { readonly state: unknown }>
  | OfTurn<"state_delta", { readonly patch: unknown }>
  | OfTurn<
      "usage_update",
      {
        readonly inputTokens?: number
        readonly outputTokens?: number
        readonly totalTokens?: number
        readonly cacheReadTokens?: number
        readonly cacheWriteTokens?: number
        readonly costUsd?: number
        readonly model?: string
      }
    >
  | OfTurn<"usage_context", { readonly used: number; readonly limit: number; readonly percent: number }>
  | OfTurn<"rate_limited", { readonly message?: string; readonly retryAfterMs?: number }>
  | OfTurn<"error", Failure>

/** An event of a session. A newer service may send types that are not listed here. */
export type SessionEvent = EventEnvelope & EventBody

/** A position in the history of a session. */
export interface Position {
  readonly epoch: string
  /** The last known event. */
  readonly seq: number
}

/** Events before a position, the oldest first. */
export interface EventPage {
  /** The history of the events. */
  readonly epoch: string
  readonly events: ReadonlyArray<SessionEvent>
  /** Whether older events may be kept. */
  readonly hasOlder: boolean
}

/** An update for a subscriber. */
export type SessionUpdate =
  | { readonly type: "event"; readonly event: SessionEvent; readonly position: Position }
  /** The conversation up to a position, if it is asked for. It replaces an earlier one; the events after it follow. */
  | { readonly type: "conversation"; readonly conversation: Conversation; readonly position: Position }
  /** All existing events are delivered; later ones are new. */
  | { readonly type: "synced"; readonly session: Session; readonly position: Position }
  /** The history was replaced. Discard what was derived from the old one; all events of the new one follow. */
  | { readonly type: "reset"; readonly epoch: string }
  /** Events after `after` are no longer kept. All events that are kept follow. */
  | { readonly type: "trimmed"; readonly after: number }

/** Whether there is a connection. */
export type ConnectionStatus =
  | { readonly type: "connected" }
  | { readonly type: "disconnected"; readonly error: Error; readonly retryInMs: number }
