/** Events of sessions and turns as a whole. */
import { Schema } from "effect"
import { ClientMessageId, Count, described, Finite, Identifier, Integer, optional } from "../Fields.ts"
import { SessionState as State } from "../Session.ts"
import { body, turn } from "./Body.ts"

/** The session has come into another state, or its instance has told of itself. */
export const SessionState = body(
  "session_state",
  "The session has come into another state, or its instance says that it is starting, ready or stopping; the session itself takes messages then as before.",
  {
    state: State,
    reason: optional(Schema.String)
  }
)

/** A turn begins: a client's message was recorded, or the agent begins one of its own accord. */
export const TurnStarted = body(
  "turn_started",
  "A turn begins: a client's message was recorded and is on its way to the agent, or the agent begins one of its own accord.",
  {
    turnId: Identifier,
    content: optional(
      described(Schema.String, "What the client wrote; absent where the agent began of its own accord.")
    ),
    sub: optional(described(Schema.String, "Who wrote it, as the `sub` of their credential has it.")),
    clientMessageId: optional(described(ClientMessageId, "What the client called the message, where it did."))
  }
)

/** A turn has ended as it should; one of the three ends of a turn. */
export const TurnCompleted = body("turn_completed", "A turn has ended as it should.", { turnId: Identifier })

/** A turn has failed; one of the three ends of a turn. */
export const TurnErrored = body("turn_errored", "A turn has failed.", {
  turnId: Identifier,
  code: described(Schema.String, "The platform's own code, or one of the gateway's."),
  message: Schema.String,
  retryable: described(Schema.Boolean, "Whether sending the message again may help.")
})

/** A turn was ended before its time; one of the three ends of a turn. */
export const TurnInterrupted = body("turn_interrupted", "A turn was ended before its time.", {
  turnId: Identifier,
  reason: optional(Schema.String)
})

/** The agent or its instance met an error; it ends no turn. */
export const ErrorEvent = body("error", "The agent or its instance met an error; it ends no turn.", {
  ...turn,
  code: Schema.String,
  message: Schema.String,
  retryable: Schema.Boolean
})

/** The agent has to wait for its model or a tool. */
export const RateLimited = body("rate_limited", "The agent has to wait for its model or a tool.", {
  ...turn,
  message: optional(Schema.String),
  retryAfterMs: optional(Count)
})

/** What the agent has used up, as the platform counts it. */
export const UsageUpdate = body("usage_update", "What the agent has used up, as the platform counts it.", {
  ...turn,
  inputTokens: optional(Count),
  outputTokens: optional(Count),
  totalTokens: optional(Count),
  cacheReadTokens: optional(Count),
  cacheWriteTokens: optional(Count),
  costUsd: optional(Finite.pipe(Schema.nonNegative())),
  model: optional(Schema.String)
})

/** How much of the model's context window is used. */
export const UsageContext = body("usage_context", "How much of the model's context window is used.", {
  ...turn,
  used: described(Count, "Tokens."),
  limit: described(Integer.pipe(Schema.positive()), "Tokens."),
  percent: described(
    Finite.pipe(Schema.nonNegative()),
    "Of `limit`, with two decimals; over 100 where the platform says so."
  )
})
