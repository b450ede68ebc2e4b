/** A session that is followed: its conversation and its events. */
import { signal } from "@preact/signals"
import {
  type Position,
  RequestRefused,
  type Session,
  type SessionState,
  type Sessions,
  type SessionUpdate
} from "../../Client/Client.ts"
import { isAbort, messageOf } from "../Service/Failure.ts"
import { FrameWork } from "../Service/Page.ts"
import { retryUntilDone } from "../Service/Pause.ts"
import { Conversation } from "./Conversation.ts"
import { EventLog } from "./EventLog.ts"

export const toneOf: Readonly<Record<SessionState, string>> = {
  inactive: "",
  activating: "info",
  active: "good",
  reconnecting: "warn",
  deactivating: "info",
  error: "bad"
}

/** Events of a page of older ones. */
const pageEvents = 250

/** A session that is followed. It must be closed. */
export class SessionFeed {
  readonly session = signal<Session | undefined>(undefined)
  #conversation = new Conversation()
  /** The newest events. Older ones are read when they are wanted. */
  #log = new EventLog()
  #position: Position | undefined
  #isReading = false
  /** Increases after events were received, at most once in a frame of the page. */
  readonly revision = signal(0)
  readonly isSynced = signal(false)
  readonly isTrimmed = signal(false)
  readonly isDeleted = signal(false)
  readonly hasOlder = signal(false)
  readonly problem = signal("")
  readonly #ended = new AbortController()
  readonly #drawing = new FrameWork(() => this.#draw())
  #state: SessionState | undefined

  constructor(
    private readonly sessions: Sessions,
    readonly id: string
  ) {
    void this.#follow()
  }

  /** Components that read it are rendered again when it has changed. */
  get conversation(): Conversation {
    void this.revision.value
    return this.#conversation
  }

  get log(): EventLog {
    return this.#log
  }

  close(): void {
    this.#drawing.cancel()
    this.#ended.abort()
  }

  /** Reads a page of the events before those in the log. */
  async readOlder(): Promise<void> {
    if (this.#isReading || !this.hasOlder.peek() || this.#position === undefined) return
    this.#isReading = true
    const log = this.#log
    const { epoch, seq } = this.#position
    try {
      const beforeSeq = log.events[0]?.seq ?? seq + 1
      const { signal } = this.#ended
      const page = await this.sessions.events(this.id, { beforeSeq, epoch, limit: pageEvents, signal })
      if (log !== this.#log) return
      this.hasOlder.value = log.prepend(page.events) && page.hasOlder
      this.#drawing.request()
    } catch (error) {
      if (!isAbort(error)) this.problem.value = messageOf(error)
    } finally {
      this.#isReading = false
    }
  }

  #draw(): void {
    const { value } = this.session
    if (this.#state !== undefined && value !== undefined) this.session.value = { ...value, state: this.#state }
    this.#state = undefined
    this.revision.value++
  }

  #begin(conversation: Conversation, position: Position | undefined): void {
    this.#conversation = conversation
    this.#log = new EventLog()
    this.#position = position
    this.isTrimmed.value = conversation.isTrimmed
    this.hasOlder.value = position !== undefined && position.seq > 0
  }

  #update(update: SessionUpdate): void {
    switch (update.type) {
      case "conversation":
        return this.#begin(new Conversation(update.conversation), update.position)
      case "event":
        this.#conversation.add(update.event)
        this.#log.add(update.event)
        if (update.event.type === "session_state") this.#state = update.event.state
        return
      case "reset":
        this.isSynced.value = false
        return this.#begin(new Conversation(), undefined)
      case "synced":
        this.#state = undefined
        this.session.value = update.session
        this.isSynced.value = true
        return
    }
  }

  async #follow(): Promise<void> {
    const { signal } = this.#ended
    try {
      this.session.value = await retryUntilDone(
        () => this.sessions.get(this.id, { signal }),
        signal,
        message => {
          this.problem.value = message
        }
      )
      for await (const update of this.sessions.subscribe(this.id, { fold: true, signal })) {
        this.#update(update)
        this.#drawing.request()
      }
    } catch (error) {
      if (isAbort(error)) return
      if (error instanceof RequestRefused && error.code === "not_found") this.isDeleted.value = true
      else this.problem.value = messageOf(error)
    }
  }
}
