/** The chat of the page, and how it stays in step with what the service has. */
import { useChat } from "@ai-sdk/react"
import { lastAssistantMessageIsCompleteWithApprovalResponses } from "ai"
import { useEffect, useEffectEvent, useRef } from "react"
import { id, type Message, pause, pauseAfter, stopAgent, stored, transport } from "./Page.ts"

/** A broken connection, after which the agent continues. Errors of the agent are of another type. */
export const isDisconnect = (error: Error | undefined): boolean => error instanceof TypeError

/** What the agent waits for. */
export const waitsFor = (message: Message | undefined): "approval" | "question" | undefined => {
  for (const part of message?.parts ?? []) {
    if (part.type === "dynamic-tool" && part.state === "approval-requested") return "approval"
    if (part.type === "data-question" && part.data.status === "pending") return "question"
  }
  return undefined
}

/**
 * What the service has, and after it what was said since. `before` is what the page had when it asked: a message that has
 * changed here in the meantime is newer than the answer.
 */
const joined = (
  stored: ReadonlyArray<Message>,
  current: ReadonlyArray<Message>,
  before: ReadonlyArray<Message>
): Array<Message> => {
  const storedById = new Map(stored.map(message => [message.id, message]))
  const known = current.findLastIndex(({ id }) => storedById.has(id))
  const since = current.slice(known + 1)
  const asked = current[known]
  // The service has the answer to a question under another id. It may be that of another tab, which was first.
  const isAnswered = waitsFor(asked) === "question" && waitsFor(storedById.get(asked!.id)) !== "question"
  if (isAnswered && since[0]?.role === "user") since.shift()
  const changed = new Map(current.filter(message => !before.includes(message)).map(message => [message.id, message]))
  return [...stored.map(message => changed.get(message.id) ?? message), ...since]
}

/** Whether the last messages, all of the person, have one that the service lacks. */
const isUnsent = (messages: ReadonlyArray<Message>, stored: ReadonlyArray<Message>): boolean =>
  messages
    .slice(messages.findLastIndex(({ role }) => role !== "user") + 1)
    .some(({ id }) => !stored.some(message => message.id === id))

/** Whether some of what a message asks for is decided, and not sent yet. */
const isDeciding = (message: Message | undefined): boolean =>
  message?.parts.some(part => part.type === "dynamic-tool" && part.state === "approval-responded") === true

/** The attempts to see that the agent no longer waits after it was stopped. */
const settleAttempts = 5

interface Shown {
  /** Whether the agent waits for a person. */
  readonly waits: boolean
  /** Whether the service lacks messages that were said here. */
  readonly lacks: boolean
}

/** Shows what the service has; nothing after the signal. */
const refreshed = async (
  setMessages: (f: (current: Array<Message>) => Array<Message>) => void,
  isBehind: { current: boolean },
  signal: AbortSignal | undefined
): Promise<Shown | undefined> => {
  let before: ReadonlyArray<Message> = []
  setMessages(current => {
    before = current
    return current
  })
  const known = await stored(signal)
  if (known === undefined || signal?.aborted) return undefined
  isBehind.current = false
  let all: Array<Message> = []
  setMessages(current => (all = joined(known, current, before)))
  const last = known.findLast(({ role }) => role === "assistant")
  return { waits: waitsFor(last) !== undefined, lacks: isUnsent(all, known) }
}

/** Calls back when the page is looked at again. */
const useVisible = (onVisible: () => void): void => {
  const listener = useEffectEvent(() => {
    if (document.visibilityState === "visible") onVisible()
  })
  useEffect(() => {
    const onChange = () => listener()
    document.addEventListener("visibilitychange", onChange)
    return () => document.removeEventListener("visibilitychange", onChange)
  }, [])
}

/** A chat that continues after a reload, a lost connection, and what other tabs have done. `initial` is what the service had. */
export const useResumedChat = (initial: Array<Message>) => {
  const chat = useChat<Message>({
    id,
    messages: initial,
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
    throttle: 50,
    transport
  })
  const { error, messages, regenerate, resumeStream, setMessages, status } = chat
  /** Whether a connection was lost, and nothing has shown since what the service has. */
  const isBehind = useRef(false)

  const refresh = useEffectEvent((signal?: AbortSignal) => refreshed(setMessages, isBehind, signal))

  /** Follows the turn in progress, after the service has sent its messages. */
  const follow = useEffectEvent(async (): Promise<void> => {
    await resumeStream()
    // Between the two requests a turn may have ended, which was not resumed, or begun, whose message is not shown.
    await refresh()
  })

  useEffect(() => void follow(), [])

  /** Shows what the service has, and follows the turn in progress. Messages that it does not have are sent again. */
  const catchUp = useEffectEvent(async (signal?: AbortSignal): Promise<void> => {
    const shown = await refresh(signal)
    if (shown !== undefined) await (shown.lacks ? regenerate() : follow())
  })

  /** Follows a turn for which something was decided, here or by another tab, as soon as the agent continues. */
  const settle = useEffectEvent(async (signal?: AbortSignal): Promise<void> => {
    for (let attempt = 0; signal ? !signal.aborted : attempt < settleAttempts; attempt++) {
      const shown = await refresh(signal)
      if (!shown?.waits) return shown?.lacks === false ? follow() : undefined
      await pause(attempt)
    }
  })

  /** The attempts to continue since the last one that has succeeded. */
  const attempts = useRef(0)
  useEffect(() => {
    if (status === "ready" || status === "streaming") attempts.current = 0
    // What was said in the meantime was answered, and the answer before it may have been cut.
    if (status === "ready" && isBehind.current) void catchUp()
  }, [status])

  useEffect(() => {
    if (error === undefined) return
    const isLost = isDisconnect(error)
    if (isLost) isBehind.current = true
    const ended = new AbortController()
    const again = (): Promise<void> => (isLost ? catchUp(ended.signal) : settle(ended.signal))
    const timer = setTimeout(() => void again().catch(() => {}), pauseAfter(attempts.current++))
    return () => {
      clearTimeout(timer)
      ended.abort()
    }
  }, [error])

  // Another tab may have continued the chat. Decisions are sent together, and would be lost before that.
  useVisible(() => {
    if (status === "ready" && !isDeciding(messages.at(-1))) void catchUp()
  })

  const isBusy = status === "submitted" || status === "streaming"
  return {
    ...chat,
    isBusy,
    stop: async () => {
      await stopAgent()
      if (!isBusy) await settle()
    }
  }
}
