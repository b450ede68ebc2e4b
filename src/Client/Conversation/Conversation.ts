/**
 * The conversation of a session: what its events say, as one JSON value. Plain types, without `effect`, so that the
 * service, clients and the console share them.
 */

/** The start of the keys that the service gives to messages and requests. No key of a client begins with it. */
export const ownPrefix = "causeway:"

/** A key of the service. */
export const ownKey = (name: string): string => `${ownPrefix}${name}`

/** An error of a turn, a tool or the agent. */
export interface Failure {
  /** A code of the platform or of the gateway. */
  readonly code?: string
  readonly message: string
  /** Whether the same message may succeed later. */
  readonly retryable?: boolean
}

/** The members of every part. */
interface Started {
  /** The `seq` and the timestamp, in epoch milliseconds, of the event that began the part. */
  readonly seq: number
  readonly timestamp: number
}

/** A part that later events may complete. */
interface Open extends Started {
  /** Present while the part is incomplete. */
  inProgress?: true
}

/** A text or a thought of the agent. */
export interface TextPart extends Open {
  readonly type: "text" | "reasoning"
  /** The id of the message or the thought. Absent if the platform sent a text without one. */
  readonly id?: string
  text: string
}

/** The latest progress of a tool. */
export interface Progress {
  readonly message?: string
  /** A fraction: 1 means complete. */
  readonly progress?: number
}

/** A call of a tool. After the end of its turn, a call with neither `result` nor `error` has no outcome. */
export interface ToolPart extends Open {
  readonly type: "tool"
  readonly callId: string
  name: string
  /** The arguments. Absent until the call is complete. */
  args?: unknown
  /** The arguments as JSON text, as far as the agent has written them, until `args` is known. */
  argsText?: string
  progress?: Progress
  result?: unknown
  error?: Failure
}

/** A question or a request for approval. */
export interface RequestPart extends Started {
  readonly type: "question" | "approval"
  readonly requestId: string
  /** The question, or the action to approve. */
  readonly title: string
  /** Describes the action. */
  readonly description?: string
  /** The possible answers to a question. */
  readonly options?: ReadonlyArray<unknown>
  /** The details of the action. */
  readonly details?: unknown
  /** A request expires if its turn ends without an answer. */
  status: "pending" | "answered" | "expired"
  /** The answer to a question. */
  answer?: unknown
  /** The answer to a request for approval. */
  approved?: boolean
  reason?: string
}

/** A terminal, with the end of its output. */
export interface TerminalPart extends Open {
  readonly type: "terminal"
  readonly terminalId: string
  readonly command?: string
  readonly cwd?: string
  output: string
  exitCode?: number
  signal?: string
}

/** A change of a file of the workspace. */
export interface FilePart extends Started {
  readonly type: "file"
  readonly change: "created" | "modified" | "deleted" | "renamed"
  readonly path: string
  readonly previousPath?: string
  readonly iteration?: number
  /** Bytes. */
  readonly size?: number
  readonly hash?: string
}

/** Something that the agent has made. */
export interface ArtifactPart extends Started {
  readonly type: "artifact"
  readonly artifactId: string
  readonly name?: string
  readonly mimeType?: string
  readonly uri?: string
}

/** The latest plan of the message. */
export interface PlanPart extends Started {
  readonly type: "plan"
  plan: unknown
}

/** A step of the plan. */
export interface StepPart extends Open {
  readonly type: "step"
  readonly stepId: string
  title?: string
  status?: string
}

/** Work of another agent. */
export interface SubagentPart extends Open {
  readonly type: "subagent"
  readonly subagentId: string
  agentType?: string
  readonly task?: string
  result?: unknown
}

/** A state of the agent that can be restored. */
export interface CheckpointPart extends Started {
  readonly type: "checkpoint"
  readonly checkpointId: string
  readonly label?: string
}

/** An error that did not end the turn, a wait for a model or a tool, or a failure of the session. */
export interface NoticePart extends Started {
  readonly type: "error" | "rate_limited" | "session_failed"
  readonly code?: string
  readonly message?: string
  readonly retryable?: boolean
  /** Milliseconds. */
  readonly retryAfterMs?: number
}

/** What an agent's message consists of. */
export type Part =
  | TextPart
  | ToolPart
  | RequestPart
  | TerminalPart
  | FilePart
  | ArtifactPart
  | PlanPart
  | StepPart
  | SubagentPart
  | CheckpointPart
  | NoticePart

/** Tokens and costs in US dollars, added up. */
export interface Usage {
  inputTokens?: number
  outputTokens?: number
  totalTokens?: number
  cacheReadTokens?: number
  cacheWriteTokens?: number
  costUsd?: number
  /** The model that was named last. */
  model?: string
}

/** A message of a user, which has started a turn. */
export interface UserMessage {
  readonly role: "user"
  /** Of the event `turn_started`. */
  readonly seq: number
  readonly timestamp: number
  readonly turnId: string
  readonly text: string
  /** The author: the claim `sub` of the token. */
  readonly sub?: string
  /** A client's key of the message, or one of the service: {@link ownKey}. */
  readonly clientMessageId?: string
}

/** What the agent did in one turn, or between turns. */
export interface AgentMessage {
  readonly role: "agent"
  /** Of the first event. */
  readonly seq: number
  readonly timestamp: number
  /** The `seq` of the newest event of the message. */
  lastSeq: number
  /** Absent if the events of the message belong to no turn. */
  readonly turnId?: string
  /** The state of the turn; absent without one. */
  status?: "running" | "completed" | "failed" | "interrupted"
  /** Why the turn failed. */
  error?: Failure
  /** Why the turn was interrupted. */
  reason?: string
  usage?: Usage
  /** In the order in which they began. */
  readonly parts: Array<Part>
}

export type Message = UserMessage | AgentMessage

/** The conversation of a session. */
export interface Conversation {
  /** The history of the events. */
  readonly epoch: string
  /** The newest event in the conversation; 0 without events. */
  seq: number
  /**
   * 0 if nothing is missing. Otherwise the newest event of which something may be missing here: it is no longer kept, or
   * the conversation has become too long.
   */
  trimmedSeq: number
  /** The turns in progress, the oldest first. Usual agents have at most one. */
  turns: Array<string>
  /** The ids of the requests that wait for a person, the oldest first. */
  waiting: Array<string>
  /** How much of the context window of the model is used; `used` and `limit` in tokens. */
  context?: { readonly used: number; readonly limit: number; readonly percent: number }
  messages: Array<Message>
}
