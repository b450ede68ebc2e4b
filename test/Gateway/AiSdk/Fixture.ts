/** Chats of the AI SDK, as `useChat` has them, over both of its transports. */
import { Chat } from "@ai-sdk/react"
import { type ChatInit, DefaultChatTransport, type UIMessage, WebSocketChatTransport } from "ai"
import { Effect, Option } from "effect"
import { WebSocket } from "ws"
import { Changes } from "../../../src/Simulator/Changes.ts"

export type Transport = "http" | "ws"

export const transports: ReadonlyArray<Transport> = ["http", "ws"]

/** A transport to chats, made as the page for users shows it. */
export const transportTo = (url: string, kind: Transport, token?: string) =>
  kind === "http"
    ? new DefaultChatTransport({ api: url, ...(token && { headers: { authorization: `Bearer ${token}` } }) })
    : new WebSocketChatTransport({
        url: `${url}/ws`,
        webSocket: WebSocket as never,
        ...(token && { protocols: ["causeway.v1", `bearer.${token}`] })
      })

/** A chat that a test watches. */
export class Watched {
  readonly changes = new Changes()
  readonly finished: Array<{ readonly isAbort: boolean; readonly isError: boolean }> = []

  constructor(readonly chat: Chat<UIMessage>) {
    const notify = () => this.changes.notify()
    chat["~registerMessagesCallback"](notify)
    chat["~registerStatusCallback"](notify)
    chat["~registerErrorCallback"](notify)
  }

  /** Waits until the chat is as wanted, and fails with its error if it has one that is not wanted. */
  until(isWanted: (chat: Chat<UIMessage>) => boolean): Effect.Effect<void> {
    return this.changes.until(() => (isWanted(this.chat) ? Option.some(undefined) : Option.none()))
  }

  get texts(): ReadonlyArray<string> {
    return this.chat.messages.map(textOf)
  }

  /** The last message of the chat. */
  get last(): UIMessage {
    return this.chat.messages.at(-1)!
  }
}

/** The text of a message. */
export const textOf = ({ parts }: UIMessage): string =>
  parts.map(part => (part.type === "text" ? part.text : "")).join("")

type Init = Omit<ChatInit<UIMessage>, "transport">

/** Opens a chat until the scope closes. */
export const open = (url: string, kind: Transport, init: Init = {}, token?: string) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const transport = transportTo(url, kind, token)
      return { transport, watched: new Watched(new Chat({ ...init, transport })) }
    }),
    ({ transport }) => Effect.sync(() => "close" in transport && transport.close())
  ).pipe(Effect.map(({ watched }) => watched))

/** Waits for a promise of the package. */
export const settled = <A>(promise: () => Promise<A>): Effect.Effect<A> => Effect.promise(promise)

/** The messages that the service has of a chat. */
export const history = (url: string, id: string): Effect.Effect<Array<UIMessage>> =>
  Effect.promise(async () => (await fetch(`${url}/${encodeURIComponent(id)}/messages`)).json() as never)

/** A message without what only its client knows, to compare what several clients have. */
export const shown = (messages: ReadonlyArray<UIMessage>): unknown =>
  JSON.parse(JSON.stringify(messages.map(({ id, parts, role }) => ({ id, role, parts: role === "user" ? [] : parts }))))
