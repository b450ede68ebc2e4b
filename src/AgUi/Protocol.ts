/**
 * What the gateway sends in the AG-UI protocol, version 1.0 (`@ag-ui/core`): the events of a run and the messages of a
 * snapshot, as plain types.
 */

/** The version of the protocol. */
export const protocolVersion = "1.0"

/**
 * A header field of our answers: the run continues without its client, and is stopped by `DELETE` of
 * `<address>/<threadId>/runs/<runId>`.
 */
export const continuingHeader = "causeway-run-continues"

/** A call of a tool in a message. */
export interface ToolCall {
  readonly id: string
  readonly type: "function"
  readonly function: { readonly name: string; readonly arguments: string }
}

/** A message of a conversation. */
export type Message =
  | { readonly id: string; readonly role: "user"; readonly content: string; readonly name?: string }
  | { readonly id: string; readonly role: "reasoning"; readonly content: string }
  | {
      readonly id: string
      readonly role: "assistant"
      readonly content?: string
      readonly toolCalls?: ReadonlyArray<ToolCall>
    }
  | {
      readonly id: string
      readonly role: "tool"
      readonly toolCallId: string
      readonly content: string
      readonly metadata?: Metadata
    }
  | { readonly id: string; readonly role: "activity"; readonly activityType: string; readonly content: object }

/** Of an event, or of the message that it makes. */
export type Metadata = { readonly [name: string]: unknown }

/** Tokens of a model. */
export interface TokenUsage {
  readonly model?: string
  readonly inputTokens?: number
  readonly outputTokens?: number
  readonly totalTokens?: number
  readonly cachedInputTokens?: number
  readonly cacheWriteInputTokens?: number
}

/** Something that a person must decide before the turn continues. */
export interface Interrupt {
  readonly id: string
  readonly reason: "tool_call" | "input_required" | "confirmation"
  readonly message: string
  readonly toolCallId?: string
  /** A JSON Schema of the `payload` of the answer. */
  readonly responseSchema?: object
  readonly metadata?: Metadata
}

/** How a run has ended without failing. */
export type Outcome =
  | { readonly type: "success"; readonly pendingToolCallIds?: ReadonlyArray<string> }
  | { readonly type: "interrupt"; readonly interrupts: ReadonlyArray<Interrupt> }
  | { readonly type: "cancelled" }

/** The members of an event by its type. */
interface Members {
  readonly RUN_STARTED: { readonly threadId: string; readonly runId: string; readonly protocolVersion: string }
  readonly RUN_FINISHED: {
    readonly threadId: string
    readonly runId: string
    readonly outcome: Outcome
    readonly usage?: ReadonlyArray<TokenUsage>
  }
  readonly RUN_ERROR: {
    readonly message: string
    readonly code: string
    readonly usage?: ReadonlyArray<TokenUsage>
    readonly metadata?: Metadata
  }
  readonly MESSAGES_SNAPSHOT: { readonly messages: ReadonlyArray<Message>; readonly metadata?: Metadata }
  readonly TEXT_MESSAGE_START: {
    readonly messageId: string
    readonly role: "assistant" | "user"
    readonly name?: string
  }
  readonly TEXT_MESSAGE_CONTENT: { readonly messageId: string; readonly delta: string }
  readonly TEXT_MESSAGE_END: { readonly messageId: string }
  readonly REASONING_START: { readonly messageId: string }
  readonly REASONING_MESSAGE_START: { readonly messageId: string; readonly role: "reasoning" }
  readonly REASONING_MESSAGE_CONTENT: { readonly messageId: string; readonly delta: string }
  readonly REASONING_MESSAGE_END: { readonly messageId: string }
  readonly REASONING_END: { readonly messageId: string }
  readonly TOOL_CALL_START: {
    readonly toolCallId: string
    readonly toolCallName: string
    readonly parentMessageId: string
  }
  readonly TOOL_CALL_ARGS: { readonly toolCallId: string; readonly delta: string }
  readonly TOOL_CALL_END: { readonly toolCallId: string }
  readonly TOOL_CALL_RESULT: {
    readonly messageId: string
    readonly toolCallId: string
    readonly role: "tool"
    readonly content: string
    readonly metadata?: Metadata
  }
  readonly STEP_STARTED: { readonly stepName: string }
  readonly STEP_FINISHED: { readonly stepName: string }
  readonly SUBAGENT_STARTED: { readonly subagentRunId: string; readonly name: string; readonly description?: string }
  readonly SUBAGENT_FINISHED: { readonly subagentRunId: string; readonly result?: unknown }
  readonly ACTIVITY_SNAPSHOT: {
    readonly messageId: string
    readonly activityType: string
    readonly content: object
  }
  readonly STATE_SNAPSHOT: { readonly snapshot: unknown }
  readonly STATE_DELTA: { readonly delta: unknown }
  readonly CUSTOM: { readonly name: string; readonly value: unknown }
}

/** An event of a run. */
export type AgUiEvent = {
  readonly [Type in keyof Members]: { readonly type: Type; readonly timestamp?: number } & Members[Type]
}[keyof Members]

/** The members of an object that are not undefined. */
export const given = <A extends object>(members: { readonly [Name in keyof A]: A[Name] | undefined }): A =>
  Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined)) as A

/** An event as a Server-Sent Event. */
export const encode = (event: AgUiEvent): string => `data: ${JSON.stringify(event)}\n\n`
