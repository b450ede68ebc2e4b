/** The code of docs/ai-sdk.md. */
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
import { settled, Watched } from "./Fixture.ts"

type Init = ChatInit<UIMessage>

/** `WebSocketChatTransport` in a browser has a WebSocket. */
class InBrowser extends WebSocketChatTransport<UIMessage> {
  constructor(options: ConstructorParameters<typeof WebSocketChatTransport<UIMessage>>[0]) {
    super({ ...options, webSocket: WebSocket as never })
  }
}

const authentication = { secret: Option.some(Redacted.make(secret)) }

live(
  "docs/ai-sdk.md: a chat over each of its transports, which is read again and stopped",
  { authentication },
  function* ({ port }) {
    const scope = {
      ...{
        DefaultChatTransport,
        WebSocketChatTransport: InBrowser,
        lastAssistantMessageIsCompleteWithApprovalResponses
      },
      service: `http://127.0.0.1:${port}`,
      token: yield* token("acme")
    }
    const code = programsOf("docs/ai-sdk.md").join("\n")
    const results = ["optionsOf", "stop", "short", "socket"]
    const [optionsOf, stop, short, socket] = (yield* settled(() => evaluate(code, scope, results))) as [
      (id: string) => Promise<Init>,
      (id: string) => Promise<Response>,
      NonNullable<Init["transport"]>,
      NonNullable<Init["transport"]>
    ]
    yield* Effect.addFinalizer(() => Effect.sync(() => socket.close?.()))
    const options = yield* settled(() => optionsOf("one"))
    const one = new Watched(new Chat(options))
    yield* settled(() => one.chat.sendMessage({ text: "/approve" }))
    const [part] = one.last.parts
    assert.isTrue(part?.type === "dynamic-tool" && part.state === "approval-requested")
    const { id } = part?.type === "dynamic-tool" ? part.approval! : { id: "" }
    yield* settled(async () => one.chat.addToolApprovalResponse({ id, approved: true }))
    yield* one.until(({ status }) => status === "ready" && one.texts.at(-1) === "approved")
    for (const transport of [short, socket]) {
      const next = new Watched(new Chat({ ...(yield* settled(() => optionsOf("one"))), transport }))
      yield* settled(() => next.chat.sendMessage({ text: "hi" }))
      assert.deepStrictEqual([next.chat.error, next.texts.at(-1)], [undefined, "echo: hi"])
    }
    const last = new Watched(new Chat({ ...options, id: "two" }))
    yield* Effect.fork(settled(() => last.chat.sendMessage({ text: "/hang" })))
    yield* last.until(({ messages }) => messages.length === 2)
    assert.strictEqual((yield* settled(() => stop("two"))).status, 204)
    yield* last.until(({ status }) => status === "ready")
    assert.deepInclude(last.last.metadata, { status: "interrupted" })
  }
)
