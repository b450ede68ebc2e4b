/** What the gateway tells the subscribers of a session. An event has a `seq`, which tells it from an answer. */
import { Schema } from "effect"
import * as Bodies from "./EventBodies.ts"
import { described, Seq, SessionId, Timestamp, TraceId } from "./Fields.ts"

export const Envelope = Schema.Struct({
  sessionId: SessionId,
  seq: Seq,
  timestamp: described(Timestamp, "When the gateway took the event in."),
  traceId: TraceId
}).annotations({ identifier: "EventEnvelope", description: "What all events carry beside their type." })

export type Envelope = (typeof Envelope)["Type"]

/** What an event says, without the envelope: what is mapped from the platform, or told by the gateway itself. */
export const EventBody = Schema.Union(
  Bodies.SessionState,
  Bodies.TurnStarted,
  Bodies.TurnCompleted,
  Bodies.TurnErrored,
  Bodies.TurnInterrupted,
  Bodies.TextStart,
  Bodies.TextDelta,
  Bodies.TextEnd,
  Bodies.ThinkingStart,
  Bodies.ThinkingDelta,
  Bodies.ThinkingEnd,
  Bodies.ToolCallStart,
  Bodies.ToolCallDelta,
  Bodies.ToolCall,
  Bodies.ToolProgress,
  Bodies.ToolResult,
  Bodies.ToolError,
  Bodies.QuestionRequested,
  Bodies.QuestionResolved,
  Bodies.ApprovalRequested,
  Bodies.ApprovalResolved,
  Bodies.TerminalOpened,
  Bodies.TerminalOutput,
  Bodies.TerminalExited,
  Bodies.FileChanged,
  Bodies.PlanUpdated,
  Bodies.StepStarted,
  Bodies.StepCompleted,
  Bodies.SubagentStarted,
  Bodies.SubagentCompleted,
  Bodies.ArtifactCreated,
  Bodies.CheckpointCreated,
  Bodies.StateSnapshot,
  Bodies.StateDelta,
  Bodies.UsageUpdate,
  Bodies.UsageContext,
  Bodies.RateLimited,
  Bodies.ErrorEvent
)

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
