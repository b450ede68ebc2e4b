/** One session as it is followed: its conversation, and the events that it was made of. */
import { signal } from "@preact/signals"
import {
  RequestRefused,
  type Session,
  type SessionEvent,
  type SessionState,
  type Sessions
} from "../../Client/Client.ts"
import { isAbort, messageOf } from "../Service/Failure.ts"
import { FrameWork } from "../Service/FrameWork.ts"
import { Conversation } from "./Conversation.ts"
import { EventLog } from "./EventLog.ts"

export class SessionFeed {
  readonly session = signal<Session | undefined>(undefined)
  conversation = new Conversation()
  /** Another one when the history has begun anew. */
  log = new EventLog()
  /** Rises at most once in a frame of the page, when events have come. */
  readonly revision = signal(0)
  readonly isSynced = signal(false)
  readonly isTrimmed = signal(false)
  readonly isDeleted = signal(false)
  readonly problem = signal("")
  readonly #ended = new AbortController()
  readonly #drawing = new FrameWork(() => this.#draw())
  /** What the newest event says of the session's state. */
  #state: SessionState | undefined

  constructor(
    private readonly sessions: Sessions,
    readonly id: string
  ) {
    void this.#follow()
  }

  close(): void {
    this.#drawing.cancel()
    this.#ended.abort(new DOMException("The session is closed", "AbortError"))
  }

  #draw(): void {
    const { value } = this.session
    if (this.#state !== undefined && value !== undefined) this.session.value = { ...value, state: this.#state }
    this.#state = undefined
    this.revision.value++
  }

  #clear(): void {
    this.conversation = new Conversation()
    this.log = new EventLog()
    this.isSynced.value = false
  }

  #add(event: SessionEvent): void {
    this.conversation.add(event, this.log.add(event))
    if (event.type === "session_state") this.#state = event.state
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
          this.#state = undefined
          this.session.value = update.session
          this.isSynced.value = true
        }
        this.#drawing.request()
      }
    } catch (error) {
      if (isAbort(error)) return
      if (error instanceof RequestRefused && error.code === "not_found") this.isDeleted.value = true
      else this.problem.value = messageOf(error)
    }
  }
}
