/** What an agent asks a person by the interrupts of AG-UI, and the answers. Pure. */
import { Option, Schema } from "effect"
import { maybe } from "../../AgUi/Protocol.ts"
import { isObject, type JsonObject } from "../../base/Json/Parsing.ts"
import { identifierChars } from "../PlatformEvent.ts"
import { identifierOf } from "./Identifier.ts"

const Json = Schema.Record({ key: Schema.String, value: Schema.Unknown })

/** An interrupt of AG-UI, as far as it is read. */
const Interrupt = Schema.Struct({
  id: Schema.String.pipe(Schema.minLength(1), Schema.maxLength(identifierChars)),
  reason: Schema.String,
  message: maybe(Schema.String),
  toolCallId: maybe(Schema.String),
  responseSchema: maybe(Json),
  metadata: maybe(Json)
})
export type Interrupt = typeof Interrupt.Type

const decode = Schema.decodeUnknownOption(
  Schema.Struct({ type: Schema.Literal("interrupt"), interrupts: Schema.Array(Interrupt).pipe(Schema.maxItems(256)) })
)

/** The interrupts of an outcome, each id once; none if it cannot be understood. */
export const interruptsOf = (outcome: unknown): ReadonlyArray<Interrupt> => {
  const { interrupts } = Option.getOrElse(decode(outcome), () => ({ interrupts: [] }))
  return [...new Map(interrupts.map(interrupt => [interrupt.id, interrupt])).values()]
}

const propertiesOf = ({ responseSchema }: Interrupt): JsonObject =>
  isObject(responseSchema?.properties) ? responseSchema.properties : {}

/** The property of an answer that approves: `approved`, or the only one. */
const approvalOf = (interrupt: Interrupt): string | undefined => {
  const properties = propertiesOf(interrupt)
  const names = Object.keys(properties)
  const name = names.length === 1 ? names[0]! : "approved"
  const property = properties[name]
  return isObject(property) && property.type === "boolean" ? name : undefined
}

/** Whether an interrupt asks for an approval: by its schema, or without one by its reason. */
const isApproval = (interrupt: Interrupt): boolean => {
  const { reason, responseSchema } = interrupt
  if (responseSchema === undefined) return reason === "confirmation" || reason === "tool_call"
  return responseSchema.type === "boolean" || approvalOf(interrupt) !== undefined
}

/** What is sent as a platform event. */
export type Payload = JsonObject & { readonly type: string }

/** An interrupt as the payload of a platform event. */
export const requestOf = (interrupt: Interrupt): Payload => {
  const { id: requestId, message, metadata, reason, responseSchema, toolCallId } = interrupt
  const text = message === undefined || message === "" ? reason : message
  if (!isApproval(interrupt)) {
    const options = Array.isArray(responseSchema?.enum) ? { options: responseSchema.enum } : {}
    return { type: "question.asked", requestId, question: text, ...options }
  }
  const request = metadata?.["causeway.request"]
  const known = isObject(request) && isObject(request.details) ? request.details : undefined
  const details = { ...(known ?? metadata), ...(toolCallId && { toolCallId: identifierOf(toolCallId) }) }
  const detailed = Object.keys(details).length === 0 ? {} : { details }
  return { type: "approval.requested", requestId, action: text, ...detailed }
}

/** An answer in the input of the run that continues the turn. */
export interface Resume {
  readonly interruptId: string
  readonly status: "resolved" | "cancelled"
  readonly payload?: unknown
}

/** Whether an answer to a request for approval approves: `true`, or an object whose `approved` is true. */
const approves = (answer: unknown): boolean => answer === true || (isObject(answer) && answer.approved === true)

const parsedObject = Schema.decodeUnknownOption(Schema.parseJson(Json))

/** A text as an answer of the schema: an object if it asks for one. */
const textAnswer = (interrupt: Interrupt, text: string): unknown => {
  if (interrupt.responseSchema?.type !== "object") return text
  const names = Object.keys(propertiesOf(interrupt))
  return Option.getOrElse(parsedObject(text), () => (names.length === 1 ? { [names[0]!]: text } : text))
}

/** A person's answer as the agent gets it. A denial without a schema for it cancels. */
export const resumeOf = (interrupt: Interrupt, answer: unknown): Resume => {
  const { id: interruptId, responseSchema } = interrupt
  const resolved = (payload: unknown): Resume => ({ interruptId, status: "resolved", payload })
  if (answer === null || answer === undefined) return { interruptId, status: "cancelled" }
  if (!isApproval(interrupt)) return resolved(typeof answer === "string" ? textAnswer(interrupt, answer) : answer)
  const approved = approves(answer)
  if (responseSchema?.type === "boolean") return resolved(approved)
  if (responseSchema === undefined && !approved) return { interruptId, status: "cancelled" }
  return resolved({ ...(isObject(answer) ? answer : {}), [approvalOf(interrupt) ?? "approved"]: approved })
}

/** The platform event by which an answer is published. */
export const resolvedBy = (interrupt: Interrupt, answer: unknown): Payload => {
  const requestId = interrupt.id
  if (!isApproval(interrupt)) return { type: "question.answered", requestId, answer }
  const reason = isObject(answer) && typeof answer.reason === "string" ? { reason: answer.reason } : {}
  return { type: "approval.resolved", requestId, approved: approves(answer), ...reason }
}
