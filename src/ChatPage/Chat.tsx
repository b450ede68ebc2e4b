/** The chat: its messages, and what a person does. */
import { type KeyboardEvent, useState } from "react"
import { type Answering, MessageView } from "./MessageView.tsx"
import { agentType, linkTo, type Message, transportName, transports } from "./Page.ts"
import { isDisconnect, useResumedChat, waitsFor } from "./ResumedChat.ts"

const Header = () => (
  <header className="head">
    <h1>{agentType}</h1>
    <nav className="ways" aria-label="Transport">
      {Object.entries(transports).map(([name, title]) => (
        <a key={name} href={linkTo({ transport: name })} aria-current={name === transportName ? "page" : undefined}>
          {title}
        </a>
      ))}
    </nav>
    <a className="button small" href={linkTo({ id: "" })}>
      New chat
    </a>
  </header>
)

interface ComposerProps {
  readonly isBusy: boolean
  /** Whether the service has the message: before that, it has nothing to stop. */
  readonly isAccepted: boolean
  readonly waits: "approval" | "question" | undefined
  readonly onSend: (text: string) => void
  readonly onStop: () => void
}

const placeholders = {
  approval: "Approve or deny first",
  question: "Answer the question",
  message: "Message, or /help"
}

const Composer = ({ isAccepted, isBusy, onSend, onStop, waits }: ComposerProps) => {
  const [text, setText] = useState("")
  const cannotSend = isBusy || waits === "approval"
  const send = () => {
    if (cannotSend || text.trim() === "") return
    onSend(text)
    setText("")
  }
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return
    event.preventDefault()
    send()
  }
  return (
    <form
      className="composer"
      onSubmit={event => {
        event.preventDefault()
        send()
      }}
    >
      <textarea
        aria-label="Message"
        rows={2}
        placeholder={placeholders[waits ?? "message"]}
        value={text}
        onChange={event => setText(event.target.value)}
        onKeyDown={onKeyDown}
      />
      {isBusy || waits !== undefined ? (
        <button type="button" className="button danger" disabled={!isAccepted} onClick={onStop}>
          Stop
        </button>
      ) : null}
      <button type="submit" className="button primary" disabled={cannotSend || text.trim() === ""}>
        Send
      </button>
    </form>
  )
}

/** What went wrong, unless the last message says it. */
const Problem = ({ error, last }: { readonly error: Error | undefined; readonly last: Message | undefined }) => {
  if (error === undefined || error.message === last?.metadata?.error?.message) return null
  return isDisconnect(error) ? (
    <p className="said muted" role="status">
      The connection was lost. Trying again…
    </p>
  ) : (
    <p className="said bad" role="alert">
      {error.message}
    </p>
  )
}

export const Chat = ({ messages: initial }: { readonly messages: Array<Message> }) => {
  const { addToolApprovalResponse, error, isBusy, messages, sendMessage, status, stop } = useResumedChat(initial)
  const last = messages.at(-1)
  const waits = isBusy ? undefined : waitsFor(last)
  const answering: Answering = {
    approve: (id, approved) => void addToolApprovalResponse({ id, approved }),
    answer: text => void sendMessage({ text })
  }
  return (
    <>
      <Header />
      {/* In reverse, so that the end stays in view. */}
      <main className="log">
        <div role="log" aria-label="Conversation" aria-busy={isBusy}>
          {messages.length === 0 ? <p className="said muted">No messages yet.</p> : null}
          {messages.map(message => (
            <MessageView
              key={message.id}
              message={message}
              answering={message === last && !isBusy ? answering : null}
            />
          ))}
          <Problem error={error} last={last} />
        </div>
      </main>
      <Composer
        isBusy={isBusy}
        isAccepted={status !== "submitted" || last?.role === "assistant"}
        waits={waits}
        onSend={text => void sendMessage({ text })}
        onStop={() => void stop().catch(() => {})}
      />
    </>
  )
}
