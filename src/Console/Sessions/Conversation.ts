/** The conversation that the events of a session describe: messages, thoughts, tool calls, questions and others. */
import type { EventBody, SessionEvent } from "../../Client/Client.ts"
import type { AgentText, Inquiry, Item, Notice, TerminalItem, ToolCall, UserMessage } from "./Items.ts"
import { ItemList } from "./Items.ts"

/** The total usage of a session. `cost` is in US dollars, `input` and `output` in tokens. */
export interface Usage {
  input: number
  output: number
  cost: number
  model: string
  context: { readonly used: number; readonly limit: number; readonly percent: number } | undefined
}

/** The maximum number of files whose last change is kept. */
const maxFiles = 10_000

/** The maximum number of characters of a terminal or of the arguments of a tool. */
const maxText = 200_000

/** The maximum number of characters of a message or a thought. */
const maxMessage = 1_000_000

/** The end of a text. It is cut only when it is 1.5 times too long, because each cut copies it. */
const tail = (text: string, max = maxText): string => (text.length > max * 1.5 ? text.slice(-max) : text)

const pretty = (value: unknown): string =>
  value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value, undefined, 2)

type Of<Type extends EventBody["type"]> = Extract<EventBody, { readonly type: Type }>

/** The state of a conversation. Events are added in their order. */
export class Conversation {
  readonly #list = new ItemList()
  readonly usage: Usage = { input: 0, output: 0, cost: 0, model: "", context: undefined }
  /** The turns in progress. Usual agents have at most one. */
  readonly #turns = new Set<string>()
  /** The last change of each file, by path. */
  readonly changedFiles = new Map<string, Of<"file_changed">["change"]>()
  /** Increases with each change of a file. */
  fileChanges = 0
  #event: SessionEvent | undefined

  get items(): ReadonlyArray<Item> {
    return this.#list.all
  }

  /** Whether a turn is in progress. */
  get isBusy(): boolean {
    return this.#turns.size > 0
  }

  /** Questions and requests for approval without an answer. */
  get waiting(): ReadonlyArray<Item & Inquiry> {
    return [...this.#list.open.values()].filter(
      (item): item is Item & Inquiry =>
        (item.kind === "question" || item.kind === "approval") && item.answer === undefined
    )
  }

  /** The question that the next message answers: the only open request. With several the user chooses one of them. */
  get question(): Inquiry | undefined {
    const [first, ...others] = this.waiting
    return first?.kind === "question" && others.length === 0 ? first : undefined
  }

  #add<New extends Item>(id: string | undefined, item: Omit<New, "seq" | "at">): New {
    const { seq, timestamp: at } = this.#event!
    const added = { seq, at, ...item } as New
    this.#list.add(added, id)
    return added
  }

  #notice(title: string, text = "", tone: Notice["tone"] = "plain"): void {
    this.#add<Item & Notice>(undefined, { kind: "notice", tone, title, text })
  }

  #text(kind: "text" | "thought", id: string): Item & AgentText {
    const open = this.#list.find(id, kind)
    if (open !== undefined && !open.isDone) return open
    return this.#add<Item & AgentText>(id, { kind, text: "", isDone: false })
  }

  #append(kind: "text" | "thought", id: string, text: string): void {
    const item = this.#text(kind, id)
    item.text = tail(item.text + text, maxMessage)
  }

  #end(kind: "text" | "thought", id: string, text: string | undefined): void {
    const item = this.#text(kind, id)
    if (text !== undefined && text.length > item.text.length) item.text = tail(text, maxMessage)
    item.isDone = true
    this.#list.open.delete(id)
  }

  #tool(callId: string, name = "tool"): Item & ToolCall {
    const id = `tool ${callId}`
    const found = this.#list.find(id, "tool")
    if (found !== undefined) return found
    return this.#add<Item & ToolCall>(id, { kind: "tool", name, args: "", progress: "", outcome: undefined })
  }

  #settle(callId: string, isError: boolean, text: string): void {
    this.#tool(callId).outcome = { isError, text: tail(text) }
    this.#list.open.delete(`tool ${callId}`)
  }

  #onAnswered(requestId: string, answer: string): void {
    for (const kind of ["question", "approval"] as const) {
      const item = this.#list.find(`${kind} ${requestId}`, kind)
      if (item === undefined) continue
      item.answer = answer
      this.#list.open.delete(`${kind} ${requestId}`)
    }
  }

  /** A turn has ended. After the last one, all open items are closed. */
  #endTurn(turnId: string): void {
    this.#turns.delete(turnId)
    if (this.isBusy) return
    for (const [id, item] of [...this.#list.open]) {
      if (item.kind === "text" || item.kind === "thought") item.isDone = true
      if (item.kind === "tool") item.outcome ??= { isError: true, text: "The turn ended before the result." }
      if (item.kind === "question" || item.kind === "approval") item.answer ??= "not answered"
      if (item.kind === "terminal") item.exit ??= "not ended"
      this.#list.open.delete(id)
    }
  }

  /** Adds the next event. `characters` is its size as JSON text. */
  add(event: SessionEvent, characters: number): void {
    this.#event = event
    this.#addMessage(event)
    this.#list.limit(characters)
  }

  #addMessage(event: SessionEvent): void {
    switch (event.type) {
      case "turn_started":
        this.#turns.add(event.turnId)
        if (event.content !== undefined) {
          this.#add<Item & UserMessage>(undefined, { kind: "user", text: event.content, by: event.sub ?? "" })
        }
        return
      case "turn_completed":
        return this.#endTurn(event.turnId)
      case "turn_errored":
        this.#endTurn(event.turnId)
        return this.#notice("The turn failed", `${event.message} (${event.code})`, "bad")
      case "turn_interrupted":
        this.#endTurn(event.turnId)
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
        return this.#onAnswered(event.requestId, pretty(event.answer))
      case "approval_resolved":
        return this.#onAnswered(
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
        const terminal = this.#list.find(`terminal ${event.terminalId}`, "terminal")
        if (terminal !== undefined) terminal.text = tail(terminal.text + event.text)
        return
      }
      case "terminal_exited": {
        const terminal = this.#list.find(`terminal ${event.terminalId}`, "terminal")
        if (terminal !== undefined) terminal.exit = event.signal ?? `exit code ${event.exitCode ?? "unknown"}`
        this.#list.open.delete(`terminal ${event.terminalId}`)
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
        // The panel of events shows the states, and the events of newer services.
        return
    }
  }
}
