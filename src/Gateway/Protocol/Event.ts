/** What the gateway tells the subscribers of a session. An event has a `seq`, which tells it from an answer. */
import { Schema } from "effect"
import * as Conversation from "./Events/Conversation.ts"
import * as Lifecycle from "./Events/Lifecycle.ts"
import * as Work from "./Events/Work.ts"
import { described, Seq, SessionId, Timestamp, TraceId } from "./Fields.ts"

/** What all events carry beside their type. */
export const Envelope = Schema.Struct({
  sessionId: SessionId,
  seq: Seq,
  timestamp: described(Timestamp, "When the gateway took the event in."),
  traceId: TraceId
}).annotations({ identifier: "EventEnvelope", description: "What all events carry beside their type." })

/** What all events carry beside their type. */
export type Envelope = (typeof Envelope)["Type"]

/** What an event says, without the envelope: what is mapped from the platform, or told by the gateway itself. */
export const EventBody = Schema.Union(
  Lifecycle.SessionState,
  Lifecycle.TurnStarted,
  Lifecycle.TurnCompleted,
  Lifecycle.TurnErrored,
  Lifecycle.TurnInterrupted,
  Conversation.TextStart,
  Conversation.TextDelta,
  Conversation.TextEnd,
  Conversation.ThinkingStart,
  Conversation.ThinkingDelta,
  Conversation.ThinkingEnd,
  Conversation.ToolCallStart,
  Conversation.ToolCallDelta,
  Conversation.ToolCall,
  Conversation.ToolProgress,
  Conversation.ToolResult,
  Conversation.ToolError,
  Conversation.QuestionRequested,
  Conversation.QuestionResolved,
  Conversation.ApprovalRequested,
  Conversation.ApprovalResolved,
  Work.TerminalOpened,
  Work.TerminalOutput,
  Work.TerminalExited,
  Work.FileChanged,
  Work.PlanUpdated,
  Work.StepStarted,
  Work.StepCompleted,
  Work.SubagentStarted,
  Work.SubagentCompleted,
  Work.ArtifactCreated,
  Work.CheckpointCreated,
  Work.StateSnapshot,
  Work.StateDelta,
  Lifecycle.UsageUpdate,
  Lifecycle.UsageContext,
  Lifecycle.RateLimited,
  Lifecycle.ErrorEvent
)

/** What an event says, without the envelope. */
export type EventBody = (typeof EventBody)["Type"]

/** The names of events. */
export type EventType = EventBody["type"]

/** The body of one type. */
export type EventBodyOf<Type extends EventType> = Extract<EventBody, { readonly type: Type }>

/** An event as clients get it. */
export const Event = Schema.extend(EventBody, Envelope)

/** An event as clients get it; it travels as it is. */
export type Event = Envelope & EventBody

/** The event of one type. */
export type EventOf<Type extends EventType> = Envelope & EventBodyOf<Type>

/** The names of all events. */
export const eventTypes: ReadonlyArray<EventType> = EventBody.members.map(({ fields }) => fields.type.literals[0])

/** The three events that end a turn. */
export const turnEnds = [
  "turn_completed",
  "turn_errored",
  "turn_interrupted"
] as const satisfies ReadonlyArray<EventType>

/** An event that ends a turn. */
export type TurnEnd = EventBodyOf<(typeof turnEnds)[number]>

/**
 * Puts a body into its envelope. In its text, `type` comes first, as it does in the body.
 *
 * `{ ...body, sessionId: … }` would leave a hidden class of a kilobyte behind in V8's old space for each event, as any
 * literal does that adds to what it has spread.
 */
export const event = (envelope: Envelope, body: EventBody): Event => Object.assign({}, body, envelope)
