/** The items of a conversation as the page shows them. */

export interface UserMessage {
  readonly kind: "user"
  readonly text: string
  readonly by: string
}

/** A message or a thought of the agent. */
export interface AgentText {
  readonly kind: "text" | "thought"
  readonly text: string
  readonly isDone: boolean
}

export interface ToolCall {
  readonly kind: "tool"
  readonly name: string
  /** The arguments as JSON text, as far as they were received. */
  readonly args: string
  readonly progress: string
  readonly outcome: { readonly isError: boolean; readonly text: string } | undefined
}

/** A question or a request for approval. */
export interface Inquiry {
  readonly kind: "question" | "approval"
  readonly requestId: string
  readonly title: string
  readonly text: string
  readonly options: ReadonlyArray<unknown>
  /** The answer; `undefined` until it is given. */
  readonly answer: string | undefined
}

export interface TerminalItem {
  readonly kind: "terminal"
  readonly command: string
  readonly text: string
  readonly exit: string | undefined
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
  | ToolCall
  | Inquiry
  | TerminalItem
  | Notice
)
