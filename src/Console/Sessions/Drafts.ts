/** Messages that the user has typed for sessions, and their sending. */
import { batch, computed, signal } from "@preact/signals"
import type { Sessions } from "../../Client/Client.ts"
import { randomId } from "../../Client/Sessions.ts"
import { messageOf } from "../Service/Failure.ts"

/** The message that the user types for a session. It is kept and sent even if its view is closed. */
export class Draft {
  readonly text = signal("")
  readonly isSending = signal(false)
  /** Why the last message was not sent; `""` if it was. */
  readonly failure = signal("")
  /** A failed message that may have been accepted. Repeated unchanged, for the same question, it has the same id. */
  #unsent:
    | { readonly text: string; readonly question: string | undefined; readonly clientMessageId: string }
    | undefined
  readonly canBeSent = computed(() => this.text.value.trim() !== "" && !this.isSending.value)

  constructor(
    private readonly sessions: Pick<Sessions, "answer" | "send">,
    private readonly id: string
  ) {}

  type(text: string): void {
    this.#unsent = undefined
    this.text.value = text
  }

  /** Sends the message: to the agent, or as the answer to a question. After a failure the text is restored. */
  async send(question?: string): Promise<void> {
    if (!this.canBeSent.peek()) return
    const text = this.text.peek()
    const unsent = this.#unsent
    const isRepeated = unsent?.text === text && unsent.question === question
    const clientMessageId = isRepeated ? unsent.clientMessageId : randomId()
    this.#unsent = undefined
    batch(() => {
      this.text.value = ""
      this.failure.value = ""
      this.isSending.value = true
    })
    try {
      await (question === undefined
        ? this.sessions.send(this.id, text, { clientMessageId })
        : this.sessions.answer(this.id, question, text, { clientMessageId }))
      this.isSending.value = false
    } catch (error) {
      this.#unsent = { text, question, clientMessageId }
      const typed = this.text.peek()
      batch(() => {
        // The user may have typed more in the meantime.
        this.text.value = typed === "" ? text : `${text}\n${typed}`
        this.failure.value = messageOf(error)
        this.isSending.value = false
      })
    }
  }
}

const drafts = new WeakMap<Sessions, Map<string, Draft>>()

/** The message that the user types for a session. It is kept until the client is closed. */
export const draftFor = (sessions: Sessions, id: string): Draft => {
  const ofConnection = drafts.get(sessions) ?? new Map<string, Draft>()
  drafts.set(sessions, ofConnection)
  const draft = ofConnection.get(id) ?? new Draft(sessions, id)
  ofConnection.set(id, draft)
  return draft
}
