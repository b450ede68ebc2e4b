/** The field in which the user writes to the agent. */
import type { Sessions } from "../../Client/Client.ts"
import { useAttempt } from "../Widgets/Attempt.ts"
import { FailureNote } from "../Widgets/Messages.tsx"
import { draftFor } from "./Drafts.ts"

interface Props {
  readonly id: string
  readonly sessions: Sessions
  readonly isBusy: boolean
  /** Whether the agent waits for an answer to a question of its own. */
  readonly isWaiting: boolean
  /** What went wrong with another request. */
  readonly problem: string
  readonly onSend: () => void
}

/** Lines that the field grows to. */
const mostRows = 8

export const Composer = ({ id, isBusy, isWaiting, onSend, problem, sessions }: Props) => {
  const draft = draftFor(sessions, id)
  const text = draft.value
  const { failure, isBusy: isSending, run } = useAttempt()

  const send = async () => {
    if (text.trim() === "" || isSending) return
    onSend()
    draft.value = ""
    await run(async () => {
      try {
        await sessions.send(id, text)
      } catch (error) {
        // Before what was typed meanwhile.
        const typed = draft.peek()
        draft.value = typed === "" ? text : `${text}\n${typed}`
        throw error
      }
    })
  }

  return (
    <form
      class="composer"
      onSubmit={event => {
        event.preventDefault()
        void send()
      }}
    >
      <textarea
        aria-label="Message"
        dir="auto"
        placeholder={
          isWaiting ? "The agent waits for an answer" : isBusy ? "The agent is at work" : "Write to the agent"
        }
        rows={Math.min(mostRows, text.split("\n").length)}
        value={text}
        onInput={event => {
          draft.value = event.currentTarget.value
        }}
        onKeyDown={event => {
          if (event.key !== "Enter" || event.shiftKey || event.isComposing) return
          event.preventDefault()
          void send()
        }}
      />
      <button type="submit" class="button primary" disabled={text.trim() === "" || isSending}>
        {isSending ? "Sending…" : "Send"}
      </button>
      <FailureNote text={failure === "" ? problem : failure} />
    </form>
  )
}
