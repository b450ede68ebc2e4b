/** The code of docs/use/ai-sdk.md, and of README.md. */
import { Chat } from "@ai-sdk/react"
import { assert } from "@effect/vitest"
import {
  type ChatInit,
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  type UIMessage,
  WebSocketChatTransport
} from "ai"
import { Effect, Option, Redacted } from "effect"
import { WebSocket } from "ws"
import { evaluate, programsOf } from "../../Docs/Page.ts"
import { live } from "../Socket/Fixture.ts"
import { secret, token } from "../survival/Token.ts"
import { settled, textOf, Watched } from "./Fixture.ts"

type Init = ChatInit<UIMessage>

/** `WebSocketChatTransport` in a browser has a WebSocket. */
class InBrowser extends WebSocketChatTransport<UIMessage> {
  constructor(options: ConstructorParameters<typeof WebSocketChatTransport<UIMessage>>[0]) {
    super({ ...options, webSocket: WebSocket as never })
  }
}

/** What `useChat` makes: a chat, which is resumed. A component shows it. */
const useChat = ({ resume = false, ...options }: Init & { readonly resume?: boolean }): Watched => {
  const watched = new Watched(new Chat(options))
  if (resume) void watched.chat.resumeStream()
  return watched
}

const authentication = { secret: Option.some(Redacted.make(secret)) }

live(
  "docs/use/ai-sdk.md: a chat over each of its transports, which is read again and stopped",
  { authentication },
  function* ({ port }) {
    const scope = {
      ...{
        useChat,
        DefaultChatTransport,
        WebSocketChatTransport: InBrowser,
        lastAssistantMessageIsCompleteWithApprovalResponses
      },
      service: `http://127.0.0.1:${port}`,
      token: yield* token("acme")
    }
    const code = programsOf("docs/use/ai-sdk.md").join("\n")
    const results = ["useAgent", "history", "stop", "short", "socket"]
    const [useAgent, history, stop, short, socket] = (yield* settled(() => evaluate(code, scope, results))) as [
      (id: string, messages: Array<UIMessage>) => Watched,
      (id: string) => Promise<Array<UIMessage>>,
      (id: string) => Promise<Response>,
      NonNullable<Init["transport"]>,
      NonNullable<Init["transport"]>
    ]
    yield* Effect.addFinalizer(() => Effect.sync(() => socket.close?.()))
    const one = useAgent("one", yield* settled(() => history("one")))
    yield* one.until(({ status }) => status === "ready")
    yield* settled(() => one.chat.sendMessage({ text: "/approve" }))
    const [part] = one.last.parts
    assert.isTrue(part?.type === "dynamic-tool" && part.state === "approval-requested")
    const { id } = part?.type === "dynamic-tool" ? part.approval! : { id: "" }
    yield* settled(async () => one.chat.addToolApprovalResponse({ id, approved: true }))
    yield* one.until(({ status }) => status === "ready" && one.texts.at(-1) === "approved")
    for (const transport of [short, socket]) {
      const next = useChat({ id: "one", messages: yield* settled(() => history("one")), transport })
      yield* settled(() => next.chat.sendMessage({ text: "hi" }))
      assert.deepStrictEqual([next.chat.error, next.texts.at(-1)], [undefined, "echo: hi"])
    }
    const last = useAgent("two", [])
    yield* last.until(({ status }) => status === "ready")
    yield* Effect.fork(settled(() => last.chat.sendMessage({ text: "/hang" })))
    yield* last.until(({ messages }) => messages.length === 2)
    const tab = useAgent("two", yield* settled(() => history("two")))
    yield* tab.until(({ messages }) => messages.length === 2)
    assert.strictEqual((yield* settled(() => stop("two"))).status, 204)
    yield* last.until(({ status }) => status === "ready")
    assert.deepInclude(last.last.metadata, { status: "interrupted" })
  }
)

live("README.md: a chat that continues in a second tab", function* ({ port }) {
  const code = programsOf("README.md").join("\n").replace("http://127.0.0.1:8080", `http://127.0.0.1:${port}`)
  const results = ["history", "useAgent"]
  const [history, useAgent] = (yield* settled(() => evaluate(code, { useChat, DefaultChatTransport }, results))) as [
    (id: string) => Promise<Array<UIMessage>>,
    (id: string, messages: Array<UIMessage>) => Watched
  ]
  const one = useAgent("one", yield* settled(() => history("one")))
  yield* one.until(({ status }) => status === "ready")
  yield* settled(() => one.chat.sendMessage({ text: "hi" }))
  assert.strictEqual(one.texts.at(-1), "echo: hi")
  yield* Effect.fork(settled(() => one.chat.sendMessage({ text: "/hang" })))
  yield* one.until(({ messages }) => messages.length === 4)
  const messages = yield* settled(() => history("one"))
  assert.deepStrictEqual(messages.slice(0, 2).map(textOf), ["hi", "echo: hi"])
  const tab = useAgent("one", messages)
  yield* tab.until(({ messages }) => messages.length === 4)
  assert.strictEqual(tab.last.id, one.last.id)
})
