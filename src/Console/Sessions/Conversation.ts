/** The conversation of a session as the page shows it: its messages as one list of items. */
import type { SessionEvent } from "../../Client/Client.ts"
import type {
  AgentMessage,
  FilePart,
  Conversation as Folded,
  Message,
  Part,
  RequestPart,
  ToolPart
} from "../../Client/Conversation/Conversation.ts"
import * as Fold from "../../Client/Conversation/Fold.ts"
import type { Inquiry, Item, Notice } from "./Items.ts"

/** The total usage of a session. `cost` is in US dollars, `input` and `output` in tokens. */
export interface Usage {
  readonly input: number
  readonly output: number
  readonly cost: number
  readonly model: string
  readonly context: Folded["context"]
}

/** The maximum number of files whose last change is kept. */
const maxFiles = 10_000

const pretty = (value: unknown): string =>
  value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value, undefined, 2)

const notice = (title: string, text = "", tone: Notice["tone"] = "plain"): Notice => ({
  kind: "notice",
  tone,
  title,
  text
})

const outcomeOf = ({ error, inProgress, result }: ToolPart) => {
  if (error !== undefined) return { isError: true, text: error.message }
  if (result !== undefined) return { isError: false, text: pretty(result) }
  return inProgress ? undefined : { isError: true, text: "The turn ended before the result." }
}

const progressOf = ({ progress: { message, progress } = {} }: ToolPart): string =>
  [message, progress === undefined ? "" : `${Math.round(progress * 100)} %`].filter(Boolean).join(" · ")

const answerOf = ({ answer, approved, reason, status }: RequestPart): string | undefined => {
  if (status !== "answered") return status === "pending" ? undefined : "not answered"
  if (approved === undefined) return pretty(answer)
  return `${approved ? "approved" : "denied"}${reason === undefined ? "" : `: ${reason}`}`
}

const inquiryOf = (part: RequestPart): Inquiry => ({
  kind: part.type,
  requestId: part.requestId,
  title: part.title,
  text: [part.description, pretty(part.details)].filter(Boolean).join("\n"),
  options: part.options ?? [],
  answer: answerOf(part)
})

/** A part as an item, without its place. */
const shown = (part: Part) => {
  switch (part.type) {
    case "text":
      return { kind: "text", text: part.text, isDone: !part.inProgress } as const
    case "reasoning":
      return { kind: "thought", text: part.text, isDone: !part.inProgress } as const
    case "tool": {
      const args = part.argsText ?? pretty(part.args)
      return { kind: "tool", name: part.name, args, progress: progressOf(part), outcome: outcomeOf(part) } as const
    }
    case "question":
    case "approval":
      return inquiryOf(part)
    case "terminal": {
      const { command = "terminal", exitCode, inProgress, output: text, signal } = part
      const ended = signal ?? (exitCode === undefined ? "not ended" : `exit code ${exitCode}`)
      return { kind: "terminal", command, text, exit: inProgress ? undefined : ended } as const
    }
    case "file":
      return notice(`File ${part.change}`, part.path)
    case "plan":
      return notice("Plan", pretty(part.plan))
    case "step":
      return part.inProgress
        ? notice("Step started", part.title ?? part.stepId)
        : notice("Step completed", part.title ?? part.stepId, "good")
    case "subagent":
      return part.inProgress
        ? notice(`Agent ${part.agentType ?? ""} started`, part.task)
        : notice(`Agent ${part.agentType ?? ""} completed`, pretty(part.result), "good")
    case "artifact":
      return notice("Artifact", part.name ?? part.artifactId)
    case "checkpoint":
      return notice("Checkpoint", part.label ?? part.checkpointId)
    case "rate_limited":
      return notice("Rate limited", part.message, "warn")
    case "session_failed":
      return notice("The session failed", part.message, "bad")
    case "error":
      return notice("Error", `${part.message} (${part.code})`, "bad")
  }
}

/** How a turn has ended, unless it is completed. */
const endOf = ({ error, lastSeq: seq, reason, status, timestamp: at }: AgentMessage): ReadonlyArray<Item> => {
  if (status === "interrupted") return [{ seq, at, ...notice("The turn was interrupted", reason, "warn") }]
  return error === undefined
    ? []
    : [{ seq, at, ...notice("The turn failed", `${error.message} (${error.code})`, "bad") }]
}

/** The items of parts that do not change any more. A value as JSON text takes long to make. */
const settled = new WeakMap<Part, Item>()

const isSettled = (part: Part): boolean =>
  !("inProgress" in part) &&
  part.type !== "plan" &&
  (part.type !== "text" || part.id !== undefined) &&
  (!("requestId" in part) || part.status !== "pending")

const itemOf = (part: Part): Item => {
  const known = settled.get(part)
  if (known !== undefined) return known
  const item: Item = { seq: part.seq, at: part.timestamp, ...shown(part) }
  if (isSettled(part)) settled.set(part, item)
  return item
}

const itemsOf = (message: Message): ReadonlyArray<Item> => {
  const { seq, timestamp: at } = message
  return message.role === "user"
    ? [{ seq, at, kind: "user", text: message.text, by: message.sub ?? "" }]
    : [...message.parts.map(itemOf), ...endOf(message)]
}

/** The state of a conversation. Events are added in their order. */
export class Conversation {
  readonly #fold: Fold.Fold
  #items: { readonly seq: number; readonly all: ReadonlyArray<Item> } | undefined
  /** The last change of each file, by path. */
  readonly changedFiles = new Map<string, string>()
  /** Increases with each change of a file. */
  fileChanges = 0

  /** Continues a conversation, which it changes. */
  constructor(conversation: Folded = Fold.empty("")) {
    this.#fold = Fold.resume(conversation)
    const parts = conversation.messages.flatMap(message => (message.role === "agent" ? message.parts : []))
    for (const part of parts) if (part.type === "file") this.#changeFiles(part)
  }

  /** Whether something of the session is missing in it. */
  get isTrimmed(): boolean {
    return this.#fold.conversation.trimmedSeq > 0
  }

  get items(): ReadonlyArray<Item> {
    const { messages, seq } = this.#fold.conversation
    if (this.#items?.seq !== seq) this.#items = { seq, all: messages.flatMap(itemsOf) }
    return this.#items.all
  }

  /** Whether a turn is in progress. */
  get isBusy(): boolean {
    return this.#fold.conversation.turns.length > 0
  }

  /** The ids of questions and requests for approval without an answer. */
  get waiting(): ReadonlyArray<string> {
    return this.#fold.conversation.waiting
  }

  /** The question that the next message answers: the only open request. With several the user chooses one of them. */
  get question(): Inquiry | undefined {
    const [first, ...others] = this.waiting
    const request = first === undefined || others.length > 0 ? undefined : Fold.pending(this.#fold, first)
    return request?.type === "question" ? inquiryOf(request) : undefined
  }

  get usage(): Usage {
    const { context } = this.#fold.conversation
    const { costUsd = 0, inputTokens = 0, model = "", outputTokens = 0 } = Fold.usageOf(this.#fold.conversation)
    return { input: inputTokens, output: outputTokens, cost: costUsd, model, context }
  }

  /** Adds the next event. */
  add(event: SessionEvent): void {
    Fold.add(this.#fold, event)
    if (event.type === "file_changed") this.#changeFiles(event)
  }

  #changeFiles({ change, path, previousPath }: Pick<FilePart, "change" | "path" | "previousPath">): void {
    this.#changeFile(path, change)
    if (previousPath !== undefined) this.#changeFile(previousPath, "deleted")
  }

  #changeFile(path: string, change: string): void {
    this.fileChanges++
    this.changedFiles.delete(path)
    this.changedFiles.set(path, change)
    if (this.changedFiles.size <= maxFiles) return
    for (const oldest of this.changedFiles.keys()) return void this.changedFiles.delete(oldest)
  }
}
