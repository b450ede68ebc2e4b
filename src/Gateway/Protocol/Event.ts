/** The events of sessions. An event has a `seq`, unlike an answer. */
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

/** An event without its envelope. */
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

export type EventType = EventBody["type"]

export type EventBodyOf<Type extends EventType> = Extract<EventBody, { readonly type: Type }>

/** An event as clients get it. */
export const Event = Schema.extend(EventBody, Envelope)

/** An event as clients get it; it travels as it is. */
export type Event = Envelope & EventBody

export type EventOf<Type extends EventType> = Envelope & EventBodyOf<Type>

export const eventTypes: ReadonlyArray<EventType> = EventBody.members.map(({ fields }) => fields.type.literals[0])

/** The three events that end a turn. */
export const turnEnds = [
  "turn_completed",
  "turn_errored",
  "turn_interrupted"
] as const satisfies ReadonlyArray<EventType>

export type TurnEnd = EventBodyOf<(typeof turnEnds)[number]>

/**
 * Puts a body into its envelope. In its text, `type` comes first.
 *
 * `{ ...body, sessionId: … }` would leave a hidden class of a kilobyte in V8's old space for each event.
 */
export const event = (envelope: Envelope, body: EventBody): Event => Object.assign({}, body, envelope)
