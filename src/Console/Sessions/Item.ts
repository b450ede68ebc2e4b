/** What a conversation is made of. Items are changed in place. */

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
  /** The arguments as JSON text, as far as they have come. */
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
  /** What was answered; `undefined` while it waits. */
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

/** One item, with the place of the event that began it. */
export type Item = { readonly seq: number; readonly at: number } & (
  | UserMessage
  | AgentText
  | Thought
  | ToolCall
  | Inquiry
  | TerminalItem
  | Notice
)

/** The characters of an item, for those texts that may be long. */
export const charactersOf = (item: Item): number => {
  const text = "text" in item ? item.text.length : 0
  return item.kind === "tool" ? item.args.length + (item.outcome?.text.length ?? 0) : text
}
