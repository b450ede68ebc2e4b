/** One session as it is followed: its conversation, and the events that it was made of. */
import { signal } from "@preact/signals"
import { RequestRefused, type Session, type SessionEvent, type Sessions } from "../../Client/Client.ts"
import { isAbort, messageOf } from "../Service/Failure.ts"
import { Conversation } from "./Conversation.ts"

/** The most events that are kept to be shown; the oldest make room. */
export const mostEvents = 100_000

export class SessionFeed {
  readonly session = signal<Session | undefined>(undefined)
  conversation = new Conversation()
  /** In the order of their numbers. */
  readonly events: Array<SessionEvent> = []
  /** Rises at most once in a frame of the page, when events have come. */
  readonly revision = signal(0)
  readonly isSynced = signal(false)
  readonly isTrimmed = signal(false)
  readonly isDeleted = signal(false)
  readonly problem = signal("")
  readonly #ended = new AbortController()
  #frame = 0

  constructor(
    private readonly sessions: Sessions,
    readonly id: string
  ) {
    void this.#follow()
  }

  close(): void {
    cancelAnimationFrame(this.#frame)
    this.#ended.abort(new DOMException("The session is closed", "AbortError"))
  }

  #changed(): void {
    if (this.#frame !== 0) return
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0
      this.revision.value++
    })
  }

  #clear(): void {
    this.conversation = new Conversation()
    this.events.length = 0
    this.isSynced.value = false
  }

  #add(event: SessionEvent): void {
    this.conversation.add(event)
    this.events.push(event)
    if (this.events.length > mostEvents + 5000) this.events.splice(0, 5000)
    const { value } = this.session
    if (event.type === "session_state" && value !== undefined) this.session.value = { ...value, state: event.state }
  }

  async #follow(): Promise<void> {
    const { signal } = this.#ended
    try {
      this.session.value = await this.sessions.get(this.id, { signal })
      for await (const update of this.sessions.subscribe(this.id, { signal })) {
        if (update.type === "event") this.#add(update.event)
        if (update.type === "reset") this.#clear()
        if (update.type === "trimmed") this.isTrimmed.value = true
        if (update.type === "synced") {
          this.session.value = update.session
          this.isSynced.value = true
        }
        this.#changed()
      }
    } catch (error) {
      if (isAbort(error)) return
      if (error instanceof RequestRefused && error.code === "not_found") this.isDeleted.value = true
      else this.problem.value = messageOf(error)
    }
  }
}
