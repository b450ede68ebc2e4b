/**
 * What clients have of a session in one form, whatever library they use: the messages with their roles and texts, the
 * calls of tools with arguments and results, and how each turn ended.
 */
import type { Message } from "@ag-ui/client"
import type { UIMessage } from "ai"
import type { AgentMessage, Conversation, Failure, Part } from "../../../src/Client/Conversation/Conversation.ts"
import type { Metadata } from "../../../src/Gateway/AiSdk/UiMessage.ts"

type Item =
  | { readonly is: "text" | "reasoning"; readonly text: string }
  | { readonly is: "call"; readonly name: string; readonly args: unknown; result: string; error: string }

/** A message of a user, and what the agent did. */
export interface Turn {
  readonly role: "user"
  readonly text: string
  readonly agent: { readonly role: "agent"; readonly items: Array<Item>; outcome: string }
}

const turnOf = (text: string, outcome = ""): Turn => ({
  role: "user",
  text,
  agent: { role: "agent", items: [], outcome }
})

const parsed = (text: string): unknown => {
  try {
    return JSON.parse(text)
  } catch {
    // A call that was cut short.
    return text === "" ? {} : text
  }
}

const resultOf = (value: unknown): string =>
  value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value)

export const outcomeOf = (status: string, error?: Partial<Failure>): string =>
  error === undefined ? status : `${status}: ${error.code}: ${error.message}`

const itemOf = (part: Part): ReadonlyArray<Item> => {
  if (part.type === "text" || part.type === "reasoning") return [{ is: part.type, text: part.text }]
  if (part.type !== "tool") return []
  const args = "args" in part ? part.args : parsed(part.argsText ?? "")
  return [{ is: "call", name: part.name, args, result: resultOf(part.result), error: part.error?.message ?? "" }]
}

/** What the conversation of the service has. */
export const ofConversation = ({ messages }: Conversation): ReadonlyArray<Turn> => {
  const agents = messages.filter((message): message is AgentMessage => message.role === "agent")
  return messages.flatMap(message => {
    if (message.role === "agent") return []
    const agent = agents.find(({ turnId }) => turnId === message.turnId)
    const turn = turnOf(message.text, outcomeOf(agent?.status ?? "", agent?.error))
    turn.agent.items.push(...(agent?.parts ?? []).flatMap(itemOf))
    return [turn]
  })
}

/** What a client of AG-UI has. `outcomes` are the ends of its runs, by the id of the user's message. */
export const ofAgUi = (
  messages: ReadonlyArray<Message>,
  outcomes: ReadonlyMap<string, string>
): ReadonlyArray<Turn> => {
  const turns: Array<Turn> = []
  const calls = new Map<string, Extract<Item, { readonly is: "call" }>>()
  for (const message of messages) {
    const items = turns.at(-1)?.agent.items
    if (message.role === "user") turns.push(turnOf(String(message.content), outcomes.get(message.id)))
    else if (message.role === "reasoning") items?.push({ is: "reasoning", text: message.content })
    else if (message.role === "assistant") {
      const { content, toolCalls = [] } = message
      if (toolCalls.length === 0) items?.push({ is: "text", text: typeof content === "string" ? content : "" })
      for (const { function: call, id } of toolCalls) {
        const item = { is: "call" as const, name: call.name, args: parsed(call.arguments), result: "", error: "" }
        calls.set(id, item)
        items?.push(item)
      }
    } else if (message.role === "tool") {
      const item = calls.get(message.toolCallId)
      const hasFailed = (message as { readonly metadata?: object }).metadata !== undefined
      if (item !== undefined) item[hasFailed ? "error" : "result"] = resultOf(message.content)
    }
  }
  return turns
}

/** What a chat of the AI SDK shows of a call that has no result. */
const withoutEnd = "The turn ended before the tool"

const uiItemOf = (part: UIMessage["parts"][number]): ReadonlyArray<Item> => {
  if (part.type === "text" || part.type === "reasoning") return [{ is: part.type, text: part.text }]
  // A call that stands for a request for approval is no call of the agent.
  if (part.type !== "dynamic-tool" || part.toolCallId.startsWith("approval-")) return []
  const args = part.input === "" ? {} : part.input
  const error = part.state === "output-error" && part.errorText !== withoutEnd ? part.errorText : ""
  return [{ is: "call", name: part.toolName, args, result: resultOf(part.output), error }]
}

/** What a chat of the AI SDK has. The answers to questions are messages of the user there. */
export const ofChat = (messages: ReadonlyArray<UIMessage>): ReadonlyArray<Turn> => {
  const turns: Array<Turn> = []
  for (const { id, metadata, parts, role } of messages) {
    const items = parts.flatMap(uiItemOf)
    if (role === "user") {
      if (!id.endsWith("/answer")) turns.push(turnOf(items.map(item => (item.is === "text" ? item.text : "")).join("")))
      continue
    }
    const agent = turns.at(-1)?.agent
    agent?.items.push(...items)
    const { error, status } = (metadata ?? {}) as Partial<Metadata>
    if (agent !== undefined && status !== undefined) agent.outcome = outcomeOf(status, error)
  }
  return turns
}

/** As text that is equal for equal turns. */
export const textOf = (turns: ReadonlyArray<Turn>): string => JSON.stringify(turns, null, 1)
