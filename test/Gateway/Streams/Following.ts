/** Turns that clients of other protocols follow, by raw requests and frames. */
import { Effect, type Scope } from "effect"
import { open } from "../HttpSessions/Fixture.ts"
import { connect } from "../Socket/Fixture.ts"

type Headers = Readonly<Record<string, string>>

/** Where a gateway is. */
export interface Gateway {
  readonly agUi: string
  readonly chats: string
}

/** A stream of a turn. */
export interface Following {
  /** All that has come. */
  readonly text: () => string
  readonly until: (matches: (text: string) => boolean) => Effect.Effect<void>
  readonly pause: () => void
  readonly resume: () => void
  /** Waits for the end: `cut`, or what the protocol says. */
  readonly end: Effect.Effect<string>
}

/** Follows the turn of a message, which is sent if it is new. Fails with the status of a refusal. */
type Follow = (
  gateway: Gateway,
  thread: string,
  message: string,
  content: string,
  headers?: Headers
) => Effect.Effect<Following, number, Scope.Scope>

/** A protocol of clients. */
export interface Kind {
  /** As metrics name it. */
  readonly protocol: string
  readonly follow: Follow
  /** Whether the text of a stream has its beginning. */
  readonly hasStarted: (text: string) => boolean
  /** The ends of a stream that is not read, and of one whose capacity others need. */
  readonly ends: { readonly slow: string; readonly busy: string }
  /** The span of a message. */
  readonly span: string
}

/** The JSON values of the events of a stream. */
const eventsIn = (text: string): ReadonlyArray<Readonly<Record<string, unknown>>> =>
  [...text.matchAll(/^data: (\{.*)$/gm)].map(([, json]) => JSON.parse(json!))

const post = (url: string, body: object, headers: Headers, endOf: (text: string) => string) =>
  Effect.gen(function* () {
    const reading = yield* open(url, headers, body)
    if (reading.status !== 200) return yield* Effect.fail(reading.status)
    const end = Effect.map(reading.isWhole, isWhole => (isWhole ? endOf(reading.text()) : "cut"))
    return { ...reading, end }
  })

const agUi: Follow = ({ agUi: url }, threadId, id, content, headers = {}) =>
  post(`${url}/echo`, { threadId, runId: `run of ${id}`, messages: [{ id, role: "user", content }] }, headers, text => {
    const last = eventsIn(text).at(-1)!
    return String(last.code ?? last.type)
  })

const submission = (chat: string, id: string, text: string) => ({
  id: chat,
  messages: [{ id, role: "user", parts: [{ type: "text", text }] }]
})

const http: Follow = ({ chats }, chat, id, text, headers = {}) =>
  post(chats, submission(chat, id, text), headers, () => "done")

const socket: Follow = ({ chats }, chat, id, content, headers = {}) =>
  Effect.gen(function* () {
    const client = yield* Effect.mapError(
      connect(`${chats.replace("http", "ws")}/ws`, { headers }),
      ({ status }) => status
    )
    yield* client.send(JSON.stringify({ type: "send", requestId: "1", ...submission(chat, id, content) }))
    const frames = client.frames as unknown as ReadonlyArray<{ readonly type: string; readonly errorText?: string }>
    const text = () => frames.map(frame => JSON.stringify(frame)).join("\n")
    const failed = () => frames.find(({ type }) => type === "error")?.errorText
    return {
      text,
      until: matches => Effect.asVoid(client.until(() => matches(text()))),
      pause: () => client.socket.pause(),
      resume: () => client.socket.resume(),
      end: Effect.raceFirst(
        Effect.map(client.closed, ({ reason }) => reason),
        Effect.map(
          client.until(() => failed() !== undefined),
          () => failed()!
        )
      )
    }
  })

export const kinds: Readonly<Record<string, Kind>> = {
  "AG-UI": {
    ...{ protocol: "ag_ui", follow: agUi, span: "agUi.run" },
    hasStarted: text => text.includes("RUN_STARTED"),
    ends: { slow: "slow_consumer", busy: "rate_limited" }
  },
  "the AI SDK over HTTP": {
    ...{ protocol: "ai_sdk", follow: http, span: "chat.send" },
    hasStarted: text => text.includes('"type":"start","messageId"'),
    ends: { slow: "cut", busy: "cut" }
  },
  "the AI SDK over a WebSocket": {
    ...{ protocol: "ai_sdk_websocket", follow: socket, span: "Chat.send" },
    hasStarted: text => text.includes('"type":"start","messageId"'),
    ends: { slow: "slow_consumer", busy: "rate_limited" }
  }
}
