/** The field for messages to the agent. While a question waits, the message is its answer. */
import type { Sessions } from "../../Client/Client.ts"
import { FailureNote } from "../Widgets/Messages.tsx"
import { draftFor } from "./Drafts.ts"

interface Props {
  readonly id: string
  readonly sessions: Sessions
  readonly isBusy: boolean
  /** Whether the agent is waiting for an answer. */
  readonly isWaiting: boolean
  /** The id of the question that the message answers. */
  readonly question: string | undefined
  /** Why another request failed; `""` if none did. */
  readonly problem: string
  readonly onSend: () => void
}

/** The maximum height of the field in lines. */
const maxRows = 8

const placeholderOf = ({ isBusy, isWaiting, question }: Props): string => {
  if (question !== undefined) return "Answer the agent"
  if (isWaiting) return "Message the agent; its requests are above"
  return isBusy ? "The agent is working" : "Message the agent"
}

export const Composer = (props: Props) => {
  const { id, onSend, problem, question, sessions } = props
  const draft = draftFor(sessions, id)
  const { failure, isSending, text } = draft

  const send = () => {
    if (!draft.canBeSent.peek()) return
    onSend()
    void draft.send(question)
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
        placeholder={placeholderOf(props)}
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
