/** The items of a conversation. They are changed in place. */

export interface UserMessage {
  readonly kind: "user"
  readonly text: string
  readonly by: string
}

export interface AgentText {
  readonly kind: "text"
  text: string
  isDone: boolean
}

export interface Thought {
  readonly kind: "thought"
  text: string
  isDone: boolean
}

export interface ToolCall {
  readonly kind: "tool"
  name: string
  /** The arguments as JSON text, as far as they were received. */
  args: string
  progress: string
  outcome: { readonly isError: boolean; readonly text: string } | undefined
}

/** A question or a request for approval. */
export interface Inquiry {
  readonly kind: "question" | "approval"
  readonly requestId: string
  readonly title: string
  readonly text: string
  readonly options: ReadonlyArray<unknown>
  /** The answer; `undefined` until it is given. */
  answer: string | undefined
}

export interface TerminalItem {
  readonly kind: "terminal"
  readonly command: string
  text: string
  exit: string | undefined
}

export interface Notice {
  readonly kind: "notice"
  readonly tone: "plain" | "good" | "warn" | "bad"
  readonly title: string
  readonly text: string
}

/** One item, with the `seq` and the timestamp of its first event. */
export type Item = { readonly seq: number; readonly at: number } & (
  | UserMessage
  | AgentText
  | Thought
  | ToolCall
  | Inquiry
  | TerminalItem
  | Notice
)

/** The number of characters in the long texts of an item. */
export const charactersOf = (item: Item): number => {
  const text = "text" in item ? item.text.length : 0
  return item.kind === "tool" ? item.args.length + (item.outcome?.text.length ?? 0) : text
}
