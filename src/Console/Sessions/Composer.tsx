/** The field for messages to the agent. */
import type { Sessions } from "../../Client/Client.ts"
import { FailureNote } from "../Widgets/Messages.tsx"
import { draftFor } from "./Drafts.ts"

interface Props {
  readonly id: string
  readonly sessions: Sessions
  readonly isBusy: boolean
  /** Whether the agent is waiting for an answer. */
  readonly isWaiting: boolean
  /** Why another request failed; `""` if none did. */
  readonly problem: string
  readonly onSend: () => void
}

/** The maximum height of the field in lines. */
const maxRows = 8

export const Composer = ({ id, isBusy, isWaiting, onSend, problem, sessions }: Props) => {
  const draft = draftFor(sessions, id)
  const { failure, isSending, text } = draft

  const send = () => {
    if (!draft.canBeSent.peek()) return
    onSend()
    void draft.send()
  }

  return (
    <form
      class="composer"
      onSubmit={event => {
        event.preventDefault()
        send()
      }}
    >
      <textarea
        aria-label="Message"
        dir="auto"
        placeholder={
          isWaiting ? "The agent is waiting for an answer" : isBusy ? "The agent is working" : "Message the agent"
        }
        rows={Math.min(maxRows, text.split("\n").length)}
        value={text}
        onInput={event => draft.type(event.currentTarget.value)}
        onKeyDown={event => {
          if (event.key !== "Enter" || event.shiftKey || event.isComposing) return
          event.preventDefault()
          send()
        }}
      />
      <button type="submit" class="button primary" disabled={!draft.canBeSent.value}>
        {isSending ? "Sending…" : "Send"}
      </button>
      <FailureNote text={failure === "" ? problem : failure} />
    </form>
  )
}
