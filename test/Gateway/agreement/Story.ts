/** What a client has received of the events of a session: its conversation. */
import { type Effect, Option } from "effect"
import type { AgentMessage, Conversation, RequestPart } from "../../../src/Client/Conversation/Conversation.ts"
import * as Fold from "../../../src/Client/Conversation/Fold.ts"
import type { SessionEvent } from "../../../src/Client/SessionModel.ts"
import { Changes } from "../../../src/Simulator/Changes.ts"

const isRequest = (part: AgentMessage["parts"][number]): part is RequestPart =>
  part.type === "question" || part.type === "approval"

export class Story {
  private readonly changes: Changes
  private fold = Fold.resume(Fold.empty(""))
  private failure: unknown

  /** `parent` is notified of each event. */
  constructor(parent?: Changes) {
    this.changes = new Changes(parent)
  }

  get conversation(): Conversation {
    return this.fold.conversation
  }

  /** The newest event. */
  get seq(): number {
    return this.conversation.seq
  }

  /** Adds an event, which must be the next one. */
  add(event: SessionEvent): void {
    if (event.seq !== this.seq + 1) throw new Error(`The event ${event.seq} came after ${this.seq}`)
    Fold.add(this.fold, event)
    this.changes.notify()
  }

  replace(conversation: Conversation): void {
    this.fold = Fold.resume(conversation)
    this.changes.notify()
  }

  /** The client does not follow any longer. */
  fail(failure: unknown): void {
    this.failure = failure
    this.changes.notify()
  }

  /** The turn of a message of a user. */
  turnOf(key: string): string | undefined {
    const isIt = (message: Conversation["messages"][number]) =>
      message.role === "user" && message.clientMessageId === key
    return this.conversation.messages.findLast(isIt)?.turnId
  }

  /** What the agent did for a message of a user. */
  answerTo(key: string): AgentMessage | undefined {
    const turnId = this.turnOf(key)
    if (turnId === undefined) return undefined
    return this.conversation.messages.find(
      (message): message is AgentMessage => message.role === "agent" && message.turnId === turnId
    )
  }

  hasEnded(key: string): boolean {
    return (this.answerTo(key)?.status ?? "running") !== "running"
  }

  /** The request of a turn that waits for a person. */
  requestIn(key: string): RequestPart | undefined {
    return this.answerTo(key)?.parts.find((part): part is RequestPart => isRequest(part) && part.status === "pending")
  }

  /** Whether a person has answered the request of a turn, or the turn has ended. */
  isDecided(key: string): boolean {
    const asked = this.answerTo(key)?.parts.filter(isRequest) ?? []
    return this.hasEnded(key) || (asked.length > 0 && asked.every(({ status }) => status !== "pending"))
  }

  until(condition: () => boolean): Effect.Effect<void> {
    return this.changes.until(() => {
      if (this.failure !== undefined) throw this.failure
      return condition() ? Option.some(undefined) : Option.none()
    })
  }
}
