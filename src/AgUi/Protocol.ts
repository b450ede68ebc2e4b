/**
 * The AG-UI protocol, version 1.0 (`@ag-ui/core`): what the gateway sends, the events of a run and the messages of a
 * snapshot; and what it reads of a client's messages.
 */
import { Schema } from "effect"

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
export type Message = { readonly id: string } & (
  | { readonly role: "user"; readonly content: string; readonly name?: string }
  | { readonly role: "reasoning"; readonly content: string }
  | { readonly role: "assistant"; readonly content?: string; readonly toolCalls?: ReadonlyArray<ToolCall> }
  | ({ readonly role: "tool" } & Result)
  | { readonly role: "activity"; readonly activityType: string; readonly content: object }
)

/** Absent or null. */
export const maybe = <A, I>(schema: Schema.Schema<A, I>) => Schema.optionalWith(schema, { nullable: true })

/** The members of a client's message that are read, in addition to its `id` and its `role`. */
export const clientMembers = {
  content: maybe(Schema.Unknown),
  toolCallId: maybe(Schema.String),
  toolCalls: maybe(
    Schema.Array(
      Schema.Struct({ id: Schema.String, function: Schema.Struct({ name: Schema.String, arguments: Schema.String }) })
    )
  )
}

/** A message as a client sends it: what is compared. */
export interface ClientMessage extends Schema.Struct.Type<typeof clientMembers> {
  readonly id: string
  readonly role: string
}

/** The result of a call. */
interface Result {
  readonly toolCallId: string
  readonly content: string
  readonly metadata?: Metadata
}

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

interface Run {
  readonly threadId: string
  readonly runId: string
}

interface OfMessage {
  readonly messageId: string
}

interface OfCall {
  readonly toolCallId: string
}

interface Delta {
  readonly delta: string
}

interface Used {
  readonly usage?: ReadonlyArray<TokenUsage>
}

/** The members of an event by its type. */
interface Members {
  readonly RUN_STARTED: Run & { readonly protocolVersion: string }
  readonly RUN_FINISHED: Run & Used & { readonly outcome: Outcome }
  readonly RUN_ERROR: Used & { readonly message: string; readonly code: string; readonly metadata?: Metadata }
  readonly MESSAGES_SNAPSHOT: { readonly messages: ReadonlyArray<Message>; readonly metadata?: Metadata }
  readonly TEXT_MESSAGE_START: OfMessage & { readonly role: "assistant" | "user"; readonly name?: string }
  readonly TEXT_MESSAGE_CONTENT: OfMessage & Delta
  readonly TEXT_MESSAGE_END: OfMessage
  readonly REASONING_START: OfMessage
  readonly REASONING_MESSAGE_START: OfMessage & { readonly role: "reasoning" }
  readonly REASONING_MESSAGE_CONTENT: OfMessage & Delta
  readonly REASONING_MESSAGE_END: OfMessage
  readonly REASONING_END: OfMessage
  readonly TOOL_CALL_START: OfCall & { readonly toolCallName: string; readonly parentMessageId: string }
  readonly TOOL_CALL_ARGS: OfCall & Delta
  readonly TOOL_CALL_END: OfCall
  readonly TOOL_CALL_RESULT: OfMessage & Result & { readonly role: "tool" }
  readonly STEP_STARTED: { readonly stepName: string }
  readonly STEP_FINISHED: { readonly stepName: string }
  readonly SUBAGENT_STARTED: { readonly subagentRunId: string; readonly name: string; readonly description?: string }
  readonly SUBAGENT_FINISHED: { readonly subagentRunId: string; readonly result?: unknown }
  readonly ACTIVITY_SNAPSHOT: OfMessage & { readonly activityType: string; readonly content: object }
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
