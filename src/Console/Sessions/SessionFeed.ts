/** The sessions of the user's tenant, and one that is followed: its conversation and its events. */
import { signal } from "@preact/signals"
import {
  RequestRefused,
  type Session,
  type SessionEvent,
  type SessionState,
  type Sessions,
  Unauthorized
} from "../../Client/Client.ts"
import { openSessions } from "../Service/Connection.ts"
import { isAbort, messageOf } from "../Service/Failure.ts"
import { FrameWork } from "../Service/Page.ts"
import { retryUntilDone } from "../Service/Pause.ts"
import { Conversation } from "./Conversation.ts"
import { EventLog } from "./EventLog.ts"

export const listed = signal<ReadonlyArray<Session>>([])
export const listProblem = signal("")
export const isListRead = signal(false)
const maxSessions = 2000

/** Reads the list again, the last active sessions first. */
export const refreshSessions = async (sessions: Sessions, signal: AbortSignal): Promise<void> => {
  try {
    const all = new Map<string, Session>()
    for await (const page of sessions.list({ signal, order: "activity" })) {
      // A session comes again if it was active in the meantime.
      for (const session of page.sessions) all.set(session.id, session)
      if (all.size >= maxSessions) break
    }
    listed.value = [...all.values()]
    listProblem.value = ""
    isListRead.value = true
  } catch (error) {
    if (isAbort(error)) return
    listProblem.value = messageOf(error)
    // The token has expired or was revoked. This client receives nothing any longer.
    if (error instanceof Unauthorized) void openSessions()
  }
}

export const toneOf: Readonly<Record<SessionState, string>> = {
  inactive: "",
  activating: "info",
  active: "good",
  reconnecting: "warn",
  deactivating: "info",
  error: "bad"
}

/** Milliseconds between two renderings while a history is read. Rendering every frame would take longer than reading. */
const renderMs = 250

/** Of a history with more events, the end is read and shown first. */
const longHistory = 5000

/** The number of events at the end of a long history that are read first. */
const endEvents = 1000

class History {
  readonly conversation = new Conversation()
  readonly log = new EventLog()

  add(event: SessionEvent): void {
    this.conversation.add(event)
    this.log.add(event)
  }
}

/** A session that is followed. It must be closed. */
export class SessionFeed {
  readonly session = signal<Session | undefined>(undefined)
  /** The history that is shown: the end of a long one, until all of it has been read. A reset replaces it. */
  #shown = new History()
  #whole = this.#shown
  /** Increases after events were received, at most once in a frame of the page. */
  readonly revision = signal(0)
  readonly isSynced = signal(false)
  readonly isTrimmed = signal(false)
  readonly isDeleted = signal(false)
  readonly problem = signal("")
  readonly #ended = new AbortController()
  readonly #drawing = new FrameWork(() => this.#draw())
  #drawnAt = 0
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
    return this.#shown.conversation
  }

  get log(): EventLog {
    return this.#shown.log
  }

  /** The progress of reading a long history, in events; `undefined` if there is none. */
  get reading(): { readonly read: number; readonly all: number } | undefined {
    const all = this.session.value?.headSeq ?? 0
    if (this.isSynced.value || all <= longHistory) return undefined
    return { read: this.#whole === this.#shown ? 0 : this.#whole.log.events.length, all }
  }

  close(): void {
    this.#drawing.cancel()
    this.#ended.abort()
  }

  #draw(): void {
    this.#drawnAt = performance.now()
    const { value } = this.session
    if (this.#state !== undefined && value !== undefined) this.session.value = { ...value, state: this.#state }
    this.#state = undefined
    this.revision.value++
  }

  async #showEnd({ epoch, headSeq }: Session): Promise<void> {
    const { signal } = this.#ended
    const after = { epoch, seq: headSeq - endEvents }
    const end = new History()
    for await (const update of this.sessions.subscribe(this.id, { after, signal })) {
      if (update.type === "event") end.add(update.event)
      // The history has been replaced. All of it is read next.
      if (update.type === "reset") return
      if (update.type === "synced") break
    }
    this.#shown = end
    this.#whole = new History()
    this.#drawing.request()
  }

  async #follow(): Promise<void> {
    const { signal } = this.#ended
    try {
      const session = await retryUntilDone(
        () => this.sessions.get(this.id, { signal }),
        signal,
        message => {
          this.problem.value = message
        }
      )
      this.session.value = session
      if (session.headSeq > longHistory) await this.#showEnd(session)
      for await (const update of this.sessions.subscribe(this.id, { signal })) {
        if (update.type === "event") {
          this.#whole.add(update.event)
          if (update.event.type === "session_state") this.#state = update.event.state
        }
        if (update.type === "reset") {
          this.#shown = this.#whole = new History()
          this.isSynced.value = false
        }
        if (update.type === "trimmed") this.isTrimmed.value = true
        if (update.type === "synced") {
          this.#state = undefined
          this.#shown = this.#whole
          this.session.value = update.session
          this.isSynced.value = true
        }
        if (this.isSynced.peek() || performance.now() - this.#drawnAt >= renderMs) this.#drawing.request()
      }
    } catch (error) {
      if (isAbort(error)) return
      if (error instanceof RequestRefused && error.code === "not_found") this.isDeleted.value = true
      else this.problem.value = messageOf(error)
    }
  }
}
