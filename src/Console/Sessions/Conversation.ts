/**
 * A conversation, as its events make it: messages, thoughts, calls of tools, questions and whatever else an agent does.
 * The items are changed in place, as a session may have very many events.
 */
import type { EventBody, SessionEvent } from "../../Client/Client.ts"
import {
  type AgentText,
  charactersOf,
  type Inquiry,
  type Item,
  type Notice,
  type TerminalItem,
  type Thought,
  type ToolCall,
  type UserMessage
} from "./Item.ts"

export interface Usage {
  input: number
  output: number
  cost: number
  model: string
  context: { readonly used: number; readonly limit: number; readonly percent: number } | undefined
}

/** The most items that are kept, and the most characters of all of them; the oldest make room. */
export const maxItems = 20_000
export const maxCharacters = 32 * 1024 * 1024

/** The most files whose last change is remembered. */
const maxFiles = 10_000

/** Items and characters that may come before room is made, as that looks at all items. */
const slack = { items: 1000, characters: 4 * 1024 * 1024 }

/** The most characters of a terminal or of a tool's arguments. */
const maxText = 200_000

/** The most characters of a message or a thought. */
const maxMessage = 1_000_000

/** The end of a text. It is cut when it is half as long again, as each cut copies it. */
const tail = (text: string, most = maxText): string => (text.length > most * 1.5 ? text.slice(-most) : text)

const pretty = (value: unknown): string =>
  value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value, undefined, 2)

type Of<Type extends EventBody["type"]> = Extract<EventBody, { readonly type: Type }>

export class Conversation {
  readonly items: Array<Item> = []
  readonly usage: Usage = { input: 0, output: 0, cost: 0, model: "", context: undefined }
  /** The turns in progress; but for unusual agents there is one at most. */
  readonly #turns = new Set<string>()
  /** Files that were changed, by path, with the last thing that happened to them. */
  readonly changedFiles = new Map<string, Of<"file_changed">["change"]>()
  /** Rises with each change of a file. */
  fileChanges = 0
  /** Items that later events add to, by kind and id. */
  readonly #open = new Map<string, Item>()
  #event: SessionEvent | undefined
  /** Characters that have come since room was made. */
  #added = 0

  /** Whether the agent is at work. */
  get isBusy(): boolean {
    return this.#turns.size > 0
  }

  /** Questions and requests for approval that wait for an answer. */
  get waiting(): ReadonlyArray<Item & Inquiry> {
    return [...this.#open.values()].filter(
      (item): item is Item & Inquiry =>
        (item.kind === "question" || item.kind === "approval") && item.answer === undefined
    )
  }

  #add<New extends Item>(id: string | undefined, item: Omit<New, "seq" | "at">): New {
    const { seq, timestamp: at } = this.#event!
    const added = { seq, at, ...item } as New
    this.items.push(added)
    if (id !== undefined) this.#open.set(id, added)
    return added
  }

  /** Makes room now and then, by what events may have added. */
  #grow(characters: number): void {
    this.#added += characters
    if (this.items.length <= maxItems + slack.items && this.#added <= slack.characters) return
    this.#added = 0
    let left = maxCharacters
    let first = this.items.length - 1
    while (first > 0 && this.items.length - first < maxItems) {
      left -= charactersOf(this.items[first]!)
      if (left < charactersOf(this.items[first - 1]!)) break
      first--
    }
    const kept = this.items[first]?.seq ?? 0
    this.items.splice(0, first)
    for (const [id, item] of this.#open) if (item.seq < kept) this.#open.delete(id)
  }

  #notice(title: string, text = "", tone: Notice["tone"] = "plain"): void {
    this.#add<Item & Notice>(undefined, { kind: "notice", tone, title, text })
  }

  #at<Kind extends Item["kind"]>(id: string, kind: Kind): Extract<Item, { readonly kind: Kind }> | undefined {
    const item = this.#open.get(id)
    return item?.kind === kind ? (item as Extract<Item, { readonly kind: Kind }>) : undefined
  }

  #text(kind: "text" | "thought", id: string): Item & (AgentText | Thought) {
    const open = this.#open.get(id)
    if (open?.kind === kind && !open.isDone) return open
    return this.#add<Item & (AgentText | Thought)>(id, { kind, text: "", isDone: false } as never)
  }

  #append(kind: "text" | "thought", id: string, text: string): void {
    const item = this.#text(kind, id)
    item.text = tail(item.text + text, maxMessage)
  }

  #end(kind: "text" | "thought", id: string, text: string | undefined): void {
    const item = this.#text(kind, id)
    if (text !== undefined && text.length > item.text.length) item.text = tail(text, maxMessage)
    item.isDone = true
    this.#open.delete(id)
  }

  #tool(callId: string, name = "tool"): Item & ToolCall {
    const id = `tool ${callId}`
    const found = this.#at(id, "tool")
    if (found !== undefined) return found
    return this.#add<Item & ToolCall>(id, { kind: "tool", name, args: "", progress: "", outcome: undefined })
  }

  #settle(callId: string, isError: boolean, text: string): void {
    this.#tool(callId).outcome = { isError, text: tail(text) }
    this.#open.delete(`tool ${callId}`)
  }

  #answered(requestId: string, answer: string): void {
    for (const kind of ["question", "approval"] as const) {
      const item = this.#at(`${kind} ${requestId}`, kind)
      if (item === undefined) continue
      item.answer = answer
      this.#open.delete(`${kind} ${requestId}`)
    }
  }

  /** A turn has ended. When none is left, nothing goes on. */
  #turnEnded(turnId: string): void {
    this.#turns.delete(turnId)
    if (this.isBusy) return
    for (const [id, item] of this.#open) {
      if (item.kind === "text" || item.kind === "thought") item.isDone = true
      if (item.kind === "tool") item.outcome ??= { isError: true, text: "The turn ended before it had a result." }
      if (item.kind === "question" || item.kind === "approval") item.answer ??= "not answered"
      if (item.kind === "terminal") item.exit ??= "not ended"
      this.#open.delete(id)
    }
  }

  /** Takes the next event, which has so many characters as JSON text. */
  add(event: SessionEvent, characters: number): void {
    this.#event = event
    this.#take(event)
    this.#grow(characters)
  }

  #take(event: SessionEvent): void {
    switch (event.type) {
      case "turn_started":
        this.#turns.add(event.turnId)
        if (event.content !== undefined) {
          this.#add<Item & UserMessage>(undefined, { kind: "user", text: event.content, by: event.sub ?? "" })
        }
        return
      case "turn_completed":
        return this.#turnEnded(event.turnId)
      case "turn_errored":
        this.#turnEnded(event.turnId)
        return this.#notice("The turn failed", `${event.message} (${event.code})`, "bad")
      case "turn_interrupted":
        this.#turnEnded(event.turnId)
        return this.#notice("The turn was interrupted", event.reason, "warn")
      case "text_start":
        this.#text("text", `text ${event.messageId}`)
        return
      case "text_delta":
        return this.#append("text", `text ${event.messageId ?? event.turnId ?? ""}`, event.text)
      case "text_end":
        return this.#end("text", `text ${event.messageId}`, event.text)
      case "thinking_start":
        this.#text("thought", `thought ${event.thinkingId}`)
        return
      case "thinking_delta":
        return this.#append("thought", `thought ${event.thinkingId}`, event.text)
      case "thinking_end":
        return this.#end("thought", `thought ${event.thinkingId}`, event.text)
      default:
        return this.#addWork(event)
    }
  }

  #addWork(event: SessionEvent): void {
    switch (event.type) {
      case "tool_call_start":
        this.#tool(event.callId).name = event.name
        return
      case "tool_call_delta": {
        const call = this.#tool(event.callId)
        call.args = tail(call.args + event.text)
        return
      }
      case "tool_call": {
        const call = this.#tool(event.callId)
        call.name = event.name
        if (event.args !== undefined) call.args = tail(pretty(event.args))
        return
      }
      case "tool_progress": {
        const share = event.progress === undefined ? "" : `${Math.round(event.progress * 100)} %`
        this.#tool(event.callId).progress = [event.message, share].filter(Boolean).join(" · ")
        return
      }
      case "tool_result":
        return this.#settle(event.callId, false, pretty(event.result))
      case "tool_error":
        return this.#settle(event.callId, true, event.message)
      case "question_requested":
        this.#inquire("question", event.requestId, event.question, "", event.options ?? [])
        return
      case "approval_requested":
        this.#inquire(
          "approval",
          event.requestId,
          event.action,
          tail([event.description, pretty(event.details)].filter(Boolean).join("\n")),
          []
        )
        return
      case "question_resolved":
        return this.#answered(event.requestId, pretty(event.answer))
      case "approval_resolved":
        return this.#answered(
          event.requestId,
          `${event.approved ? "approved" : "denied"}${event.reason === undefined ? "" : `: ${event.reason}`}`
        )
      case "usage_update":
        return this.#use(event)
      case "usage_context":
        this.usage.context = { used: event.used, limit: event.limit, percent: event.percent }
        return
      default:
        return this.#addRest(event)
    }
  }

  #changeFile(path: string, change: Of<"file_changed">["change"]): void {
    this.fileChanges++
    this.changedFiles.delete(path)
    this.changedFiles.set(path, change)
    if (this.changedFiles.size <= maxFiles) return
    for (const oldest of this.changedFiles.keys()) return void this.changedFiles.delete(oldest)
  }

  #inquire(
    kind: "question" | "approval",
    requestId: string,
    title: string,
    text: string,
    options: ReadonlyArray<unknown>
  ): void {
    this.#add<Item & Inquiry>(`${kind} ${requestId}`, { kind, requestId, title, text, options, answer: undefined })
  }

  #use({ costUsd = 0, inputTokens = 0, model, outputTokens = 0 }: Of<"usage_update">): void {
    this.usage.input += inputTokens
    this.usage.output += outputTokens
    this.usage.cost += costUsd
    if (model !== undefined) this.usage.model = model
  }

  #addRest(event: SessionEvent): void {
    switch (event.type) {
      case "terminal_opened":
        this.#add<Item & TerminalItem>(`terminal ${event.terminalId}`, {
          kind: "terminal",
          command: event.command ?? "terminal",
          text: "",
          exit: undefined
        })
        return
      case "terminal_output": {
        const terminal = this.#at(`terminal ${event.terminalId}`, "terminal")
        if (terminal !== undefined) terminal.text = tail(terminal.text + event.text)
        return
      }
      case "terminal_exited": {
        const terminal = this.#at(`terminal ${event.terminalId}`, "terminal")
        if (terminal !== undefined) terminal.exit = event.signal ?? `exit code ${event.exitCode ?? "unknown"}`
        this.#open.delete(`terminal ${event.terminalId}`)
        return
      }
      case "file_changed":
        this.#changeFile(event.path, event.change)
        if (event.previousPath !== undefined) this.#changeFile(event.previousPath, "deleted")
        return this.#notice(`File ${event.change}`, event.path)
      case "session_state":
        if (event.state === "error") this.#notice("The session failed", event.reason, "bad")
        return
      case "plan_updated":
        return this.#notice("Plan", tail(pretty(event.plan)))
      case "step_started":
        return this.#notice("Step started", event.title ?? event.stepId)
      case "step_completed":
        return this.#notice("Step completed", event.title ?? event.stepId, "good")
      case "subagent_started":
        return this.#notice(`Agent ${event.agentType ?? ""} started`, event.task)
      case "subagent_completed":
        return this.#notice(`Agent ${event.agentType ?? ""} completed`, tail(pretty(event.result)), "good")
      case "artifact_created":
        return this.#notice("Artifact", event.name ?? event.artifactId)
      case "checkpoint_created":
        return this.#notice("Checkpoint", event.label ?? event.checkpointId)
      case "rate_limited":
        return this.#notice("Rate limited", event.message, "warn")
      case "error":
        return this.#notice("Error", `${event.message} (${event.code})`, "bad")
      default:
        // States are seen among the raw events, and so is what a newer service sends.
        return
    }
  }
}
