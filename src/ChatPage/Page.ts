/** The chat that the address of the page names, and the routes of the service for it. */
import { DefaultChatTransport, type UIMessage, WebSocketChatTransport } from "ai"

/** What the service says about a message. */
export interface Metadata {
  readonly createdAt?: number
  readonly status?: "completed" | "failed" | "interrupted"
  readonly error?: { readonly message: string }
}

/** What is asked of a person. */
export interface Question {
  readonly title: string
  readonly options?: ReadonlyArray<unknown>
  readonly status: "pending" | "answered" | "expired"
}

/** The other parts with data are shown as they are. */
export type Message = UIMessage<Metadata, { readonly question: Question; readonly other: unknown }>

const { content } = document.querySelector<HTMLMetaElement>('meta[name="causeway-routes"]')!
const routes: Readonly<Record<string, string>> = JSON.parse(content)

const address = new URL(location.href)
const { searchParams } = address

/** The id is in the address, so that a reload and another tab have the same chat. */
if (!searchParams.get("id")) {
  searchParams.set("id", crypto.randomUUID())
  history.replaceState(undefined, "", address)
}

export const id = searchParams.get("id")!
export const agentType = searchParams.get("agent") || "coder"
export const transports = { http: "HTTP", websocket: "WebSocket" } as const
export const transportName: keyof typeof transports =
  searchParams.get("transport") === "websocket" ? "websocket" : "http"

/** The address of the page with other parameters. */
export const linkTo = (parameters: Readonly<Record<string, string>>): string => {
  const link = new URL(address)
  for (const [name, value] of Object.entries(parameters)) link.searchParams.set(name, value)
  return link.search
}

const api = new URL(`${routes.chats}/${encodeURIComponent(agentType)}`, location.href).href
const chat = `${api}/${encodeURIComponent(id)}`

/** In dev mode the service wants no token. */
export const transport =
  transportName === "websocket"
    ? new WebSocketChatTransport<Message>({ url: `${api}/ws`, protocols: "causeway.v1" })
    : new DefaultChatTransport<Message>({ api })

/** The pause in milliseconds after a number of attempts that have failed. */
export const pauseAfter = (attempts: number): number => Math.min(500 * 2 ** attempts, 8000)

export const pause = (attempts: number): Promise<void> =>
  new Promise(resolve => setTimeout(resolve, pauseAfter(attempts)))

/** The messages that the service has, as soon as it answers; nothing after the signal. */
export const stored = async (signal?: AbortSignal): Promise<Array<Message> | undefined> => {
  for (let attempts = 0; !signal?.aborted; attempts++) {
    try {
      const response = await fetch(`${chat}/messages`)
      if (response.ok) return await response.json()
      if (response.status < 500) throw new Error(await response.text())
    } catch (error) {
      // The service does not answer, or not to the end.
      if (!(error instanceof TypeError)) throw error
    }
    await pause(attempts)
  }
  return undefined
}

/** Stops the agent: the transport would only end its request. */
export const stopAgent = async (): Promise<void> => {
  await fetch(`${chat}/stream`, { method: "DELETE" })
}
