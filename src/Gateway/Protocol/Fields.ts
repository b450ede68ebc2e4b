/** The fields that several frames share, and the session. */
import { Schema, SchemaAST } from "effect"
import { isObject } from "../../base/Json/Parsing.ts"
import { ownPrefix } from "../../Client/Conversation/Conversation.ts"
import * as Limits from "./Limits.ts"

/** An optional field, which is never null. */
export const optional = <A, I>(schema: Schema.Schema<A, I>) => Schema.optionalWith(schema, { exact: true })

/** The schema with a description, which the generated documents show. Errors would show it for an array too. */
export const described = <A, I>(schema: Schema.Schema<A, I>, description: string): Schema.Schema<A, I> =>
  schema.annotations({
    description,
    ...(SchemaAST.isTupleType(schema.ast) && { message: () => "must be an array" })
  })

/** The name of a frame's schema in generated documents: `text_delta` with `Event` is `TextDeltaEvent`. */
export const schemaName = (type: string, kind: string): string =>
  `${type.replace(/(?:^|_)([a-z])/g, (_, letter: string) => letter.toUpperCase())}${kind}`

// Schema.Int and Schema.Finite have identifiers, which generated documents would refer to.

/** A whole number, also a negative one. */
export const Integer = Schema.Number.pipe(
  Schema.int({ description: "A whole number.", message: () => "must be a whole number" })
)

/** A number other than NaN and the infinities. */
export const Finite = Schema.Number.pipe(Schema.finite({ description: "A number." }))

const text = (min: number, max: number) =>
  Schema.String.pipe(
    Schema.minLength(min, { message: () => "must not be empty" }),
    Schema.maxLength(max, {
      // Also called for values that are no text. Some objects of JSON cannot be made one: {"toString": 1}.
      message: ({ actual }) => `has ${typeof actual === "string" ? actual.length : 0} characters; the limit is ${max}`
    })
  )

/** A whole number from 0. */
export const Count = Integer.pipe(
  Schema.nonNegative({ description: "A whole number from 0 on.", message: () => "must be a whole number from 0 on" })
)

/** A time in whole epoch milliseconds. */
export const Timestamp = Count.annotations({ description: "Epoch milliseconds." })

/** The id of a request, which its answer repeats. */
export const RequestId = text(1, Limits.requestIdChars).annotations({
  description: `Chosen by the client. The answer has the same id. 1 to ${Limits.requestIdChars} characters.`
})

/** Valid in a key, a URL and a file name. */
export const SessionId = Schema.String.pipe(
  Schema.pattern(new RegExp(`^[A-Za-z0-9_-]{1,${Limits.sessionIdChars}}$`), {
    message: () => `must be 1 to ${Limits.sessionIdChars} letters, digits, "_" or "-"`
  }),
  Schema.annotations({ description: "The id of a session." })
)

/** An id of the agent platform, or an id with the same form. */
export const Identifier = text(1, Limits.identifierChars).annotations({ description: "An id." })

/** The key of a message in its event: of a client, or of the gateway. */
export const MessageKey = text(1, Limits.clientMessageIdChars)

/** Makes a message or an answer idempotent. */
export const ClientMessageId = MessageKey.pipe(
  // The generated documents do not say it: not all clients that are made of them know such patterns.
  Schema.filter(id => !id.startsWith(ownPrefix), {
    message: () => `must not begin with "${ownPrefix}"`,
    jsonSchema: {}
  }),
  Schema.annotations({ description: "Chosen by the client. Unique in the session." })
)

/** A text without structure, such as a title. */
export const Name = text(1, Limits.nameChars).annotations({ description: "A name." })

/** The path of a file. It is checked further when the file is requested. */
export const Path = text(1, Limits.pathChars).annotations({ description: "A path relative to the workspace." })

/** An opaque position in a list. */
export const Cursor = text(1, Limits.cursorChars).annotations({
  description: "The position in the list, from the previous answer."
})

/** The number of an event in the history of its session. */
export const Seq = Integer.pipe(
  Schema.positive({ description: "The number of the event in its session, from 1, without gaps." })
)

/** The id of a history. A `seq` has a meaning only within one epoch. */
export const Epoch = text(1, Limits.identifierChars).annotations({
  description: "Identifies the history. It changes only when the history is lost or reset."
})

/** A trace id of W3C Trace Context: 32 lower-case hexadecimal digits. */
export const TraceId = Schema.String.pipe(
  Schema.pattern(/^[0-9a-f]{32}$/),
  Schema.annotations({ description: "The id of the trace in the logs and traces of the server." })
)

/**
 * Whether a parsed JSON value nests at most `max` levels of arrays and objects.
 *
 * It recurses no deeper: `JSON.parse` accepts values at which recursion and `JSON.stringify` overflow the stack.
 */
export const isWithinDepth = (value: unknown, max: number): boolean => {
  if (typeof value !== "object" || value === null) return true
  if (max === 0) return false
  if (Array.isArray(value)) return value.every(item => isWithinDepth(item, max - 1))
  for (const name in value) if (!isWithinDepth(Reflect.get(value, name), max - 1)) return false
  return true
}

/**
 * Any JSON value of at most {@link Limits.jsonDepth} levels. It is not copied, so that all member names and their order
 * are kept.
 */
export const Json = Schema.Unknown.pipe(
  Schema.filter(value => value !== undefined && isWithinDepth(value, Limits.jsonDepth), {
    message: () => `must be a JSON value of at most ${Limits.jsonDepth} levels`,
    description: `Any JSON value of at most ${Limits.jsonDepth} levels.`,
    jsonSchema: {}
  })
)

/** `__proto__` is excluded: assigning it would set the prototype. */
const isName = (name: string): boolean => /^[A-Za-z_][A-Za-z0-9_.-]{0,255}$/.test(name) && name !== "__proto__"

const problems = (variables: Readonly<Record<string, unknown>>): ReadonlyArray<Schema.FilterIssue> => {
  const entries = Object.entries(variables)
  if (entries.length > Limits.variables) {
    return [{ path: [], message: `has ${entries.length} names; the limit is ${Limits.variables}` }]
  }
  // Messages do not contain the values, which may be secrets.
  return entries.flatMap(([name, value]) =>
    !isName(name)
      ? [{ path: [name.slice(0, 64)], message: "is not a name for a variable" }]
      : typeof value !== "string"
        ? [{ path: [name], message: "must be text" }]
        : []
  )
}

const Checked = Schema.declare(isObject, {
  identifier: "Variables",
  message: () => "must be an object of texts by name"
}).pipe(Schema.filter(problems))

/** Values by name, decoded by `value`. No error message contains a value. */
export const variables = <A>(value: Schema.Schema<A, string>, description: string) =>
  Schema.compose(Checked, Schema.Record({ key: Schema.String, value }), { strict: false }).annotations({
    description,
    jsonSchema: {
      type: "object",
      description,
      additionalProperties: { type: "string" },
      maxProperties: Limits.variables
    }
  })

/** The state of a session. Its instance runs while it is `active` or `reconnecting`. */
export const SessionState = Schema.Literal(
  "inactive",
  "activating",
  "active",
  "reconnecting",
  "deactivating",
  "error"
).annotations({ identifier: "SessionState", description: "The state of a session." })
export type SessionState = (typeof SessionState)["Type"]

/** A part of a session's launch configuration that may be lost. */
export const LostPart = Schema.Literal("environment", "deployment")
export type LostPart = (typeof LostPart)["Type"]

/** A session as clients see it, and as it is stored. It never contains the session's secrets. */
export const Session = Schema.Struct({
  id: SessionId,
  tenant: Schema.String,
  agentType: Name,
  title: described(Schema.String, "Empty until the session has a title."),
  state: SessionState,
  instanceId: described(Schema.NullOr(Identifier), "The instance of the platform, or null if there is none."),
  createdAt: Timestamp,
  updatedAt: Timestamp,
  epoch: Epoch,
  headSeq: described(Count, "The `seq` of the newest event, or 0 if there is none."),
  lastEventAt: optional(
    described(Timestamp, "When the newest event was received, in epoch milliseconds. Absent without events.")
  ),
  running: optional(described(Schema.Boolean, "Whether a turn is in progress.")),
  waiting: optional(
    described(
      Schema.Boolean,
      "Whether the agent waits for a person: a question or an approval request of the instance is not resolved, and its turn has not ended."
    )
  ),
  failed: optional(
    described(
      Schema.Boolean,
      "Whether the last turn failed, or the session. The next turn and the next start of the session end that."
    )
  ),
  missingSecrets: optional(
    described(
      Schema.Array(Schema.String),
      "The names of secrets that were lost. `start_session` must provide them again."
    )
  ),
  missingConfiguration: optional(
    described(
      Schema.Array(LostPart),
      "The parts of the configuration that were lost. `start_session` must provide them again."
    )
  )
}).annotations({ identifier: "Session", description: "A session." })
export type Session = (typeof Session)["Type"]
