/** The official clients of chats and runs on a web page, bundled by the test, which calls `client` there. */
import { HttpAgent } from "@ag-ui/client"
import { Chat } from "@ai-sdk/react"
import { DefaultChatTransport, type UIMessage, WebSocketChatTransport } from "ai"

export type Kind = "agUi" | "http" | "webSocket"

/** What a client has seen. */
export interface Seen {
  readonly kind: Kind
  /** Whether the answer has started. */
  hasStarted: boolean
  /** Whether nothing more comes. */
  isOver: boolean
  text: string
  /** The name and the message of an error, or the code of a run's. */
  error?: string
}

const all: Array<Seen> = []

const nameOf = ({ message, name }: Error): string => `${name}: ${message}`

const threadId = (): string => crypto.randomUUID()

const run = async (url: string, token: string, content: string, seen: Seen): Promise<void> => {
  const headers = { authorization: `Bearer ${token}` }
  const agent = new HttpAgent({ url: `${url}/api/v1/ag-ui/coder`, headers, threadId: threadId() })
  agent.addMessage({ id: "message-1", role: "user", content })
  agent.subscribe({
    onRunStartedEvent: () => {
      seen.hasStarted = true
    },
    onTextMessageContentEvent: ({ event }) => {
      seen.text += event.delta
    },
    onRunErrorEvent: ({ event }) => {
      seen.error = `code: ${event.code}`
    }
  })
  await agent.runAgent({ runId: "run-1" }).catch((error: Error) => {
    seen.error ??= nameOf(error)
  })
}

const transportOf = (kind: Kind, api: string, token: string) =>
  kind === "http"
    ? new DefaultChatTransport<UIMessage>({ api, headers: { authorization: `Bearer ${token}` } })
    : new WebSocketChatTransport<UIMessage>({ url: `${api}/ws`, protocols: ["causeway.v1", `bearer.${token}`] })

const chat = async (url: string, token: string, text: string, seen: Seen): Promise<void> => {
  const transport = transportOf(seen.kind, `${url}/api/v1/chat/coder`, token)
  const one = new Chat<UIMessage>({ id: threadId(), transport })
  one["~registerMessagesCallback"](() => {
    const [, message] = one.messages
    seen.hasStarted = message !== undefined
    seen.text = (message?.parts ?? []).map(part => (part.type === "text" ? part.text : "")).join("")
  })
  await one.sendMessage({ text })
  if (one.error !== undefined) seen.error = nameOf(one.error)
}

/** Sends a message in a new chat. */
const say = (kind: Kind, url: string, token: string, text: string): void => {
  const seen: Seen = { kind, hasStarted: false, isOver: false, text: "" }
  all.push(seen)
  const said = kind === "agUi" ? run(url, token, text, seen) : chat(url, token, text, seen)
  void said.finally(() => {
    seen.isOver = true
  })
}

/** The statuses of requests that stop a turn and a run. */
const stop = (url: string, token: string): Promise<ReadonlyArray<number>> =>
  Promise.all(
    ["chat/coder/none/stream", "ag-ui/coder/none/runs/none"].map(async path => {
      const headers = { authorization: `Bearer ${token}` }
      return (await fetch(`${url}/api/v1/${path}`, { method: "DELETE", headers })).status
    })
  )

Object.assign(globalThis, { client: { say, stop, look: () => all } })
