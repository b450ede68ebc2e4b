/** The chat: its messages, and what a person does. */
import { useChat } from "@ai-sdk/react"
import { lastAssistantMessageIsCompleteWithApprovalResponses } from "ai"
import { type KeyboardEvent, useEffect, useEffectEvent, useRef, useState } from "react"
import { type Answering, MessageView } from "./MessageView.tsx"
import {
  agentType,
  id,
  linkTo,
  type Message,
  pauseAfter,
  stopAgent,
  stored,
  transport,
  transportName,
  transports
} from "./Page.ts"

/** A broken connection, after which the agent continues. Errors of the agent are of another type. */
const isDisconnect = (error: Error | undefined): boolean => error instanceof TypeError

const textOf = ({ parts }: Message): string => parts.map(part => (part.type === "text" ? part.text : "")).join("")

/**
 * What the service has, and after it what was said since. `before` is what the page had when it asked: a message that has
 * changed here in the meantime is newer than the answer.
 */
const joined = (
  stored: ReadonlyArray<Message>,
  current: ReadonlyArray<Message>,
  before: ReadonlyArray<Message>
): Array<Message> => {
  const storedIds = new Set(stored.map(({ id }) => id))
  const currentIds = new Set(current.map(({ id }) => id))
  // The service has the answer to a question under another id.
  const answers = stored.filter(({ id }) => id.endsWith("/answer") && !currentIds.has(id)).map(textOf)
  const known = current.findLastIndex(({ id }) => storedIds.has(id))
  const since = current
    .slice(known + 1)
    .filter(message => message.role !== "user" || !answers.includes(textOf(message)))
  const changed = new Map(current.filter(message => !before.includes(message)).map(message => [message.id, message]))
  return [...stored.map(message => changed.get(message.id) ?? message), ...since]
}

const useResumedChat = (initial: Array<Message>) => {
  const chat = useChat<Message>({
    id,
    messages: initial,
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
    throttle: 50,
    transport
  })
  const { error, regenerate, resumeStream, setMessages, status } = chat

  /** Gets what the service has. Returns whether it lacks messages that were said here; nothing after the signal. */
  const refresh = useEffectEvent(async (signal?: AbortSignal): Promise<boolean | undefined> => {
    let before: ReadonlyArray<Message> = []
    setMessages(current => {
      before = current
      return current
    })
    const known = await stored(signal)
    if (known === undefined || signal?.aborted) return undefined
    let isUnsent = false
    setMessages(current => {
      const said = current.slice(current.findLastIndex(({ role }) => role !== "user") + 1)
      isUnsent = said.some(({ id }) => !known.some(message => message.id === id))
      return joined(known, current, before)
    })
    return isUnsent
  })

  /** Follows the turn in progress, after the service has sent its messages. */
  const follow = useEffectEvent(async (): Promise<void> => {
    await resumeStream()
    // Between the two requests a turn may have ended, which was not resumed, or begun, whose message is not shown.
    await refresh()
  })

  useEffect(() => void follow(), [])

  /** Gets what the service has, and follows the turn in progress. Messages that it does not have are sent again. */
  const catchUp = useEffectEvent(async (signal?: AbortSignal): Promise<void> => {
    const isUnsent = await refresh(signal)
    if (isUnsent !== undefined) await (isUnsent ? regenerate() : follow())
  })

  /** The attempts to continue since the last one that has succeeded. */
  const attempts = useRef(0)
  useEffect(() => {
    if (status === "ready" || status === "streaming") attempts.current = 0
  }, [status])

  useEffect(() => {
    if (!isDisconnect(error)) return
    const ended = new AbortController()
    const timer = setTimeout(() => void catchUp(ended.signal), pauseAfter(attempts.current++))
    return () => {
      clearTimeout(timer)
      ended.abort()
    }
  }, [error])

  // Another tab may have continued the chat.
  const onVisible = useEffectEvent(() => {
    if (document.visibilityState === "visible" && status === "ready") void catchUp()
  })
  useEffect(() => {
    const listener = () => onVisible()
    document.addEventListener("visibilitychange", listener)
    return () => document.removeEventListener("visibilitychange", listener)
  }, [])

  const isBusy = status === "submitted" || status === "streaming"
  return {
    ...chat,
    isBusy,
    stop: async () => {
      await stopAgent()
      if (!isBusy) await catchUp()
    }
  }
}

/** What the agent waits for. */
const waitsFor = (message: Message | undefined): "approval" | "question" | undefined => {
  for (const part of message?.parts ?? []) {
    if (part.type === "dynamic-tool" && part.state === "approval-requested") return "approval"
    if (part.type === "data-question" && part.data.status === "pending") return "question"
  }
  return undefined
}

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
        isAccepted={status !== "submitted"}
        waits={waits}
        onSend={text => void sendMessage({ text })}
        onStop={() => void stop().catch(() => {})}
      />
    </>
  )
}
