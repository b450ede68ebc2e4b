/** A chat of the AI SDK that follows a session through failures of the service. */
import type { UIMessage } from "ai"
import { Effect, Option, type Scope } from "effect"
import { open, settled, type Transport, type Watched } from "../AiSdk/Fixture.ts"
import { request } from "./EventClients.ts"
import type { Nodes } from "./Nodes.ts"

/** Whether a message of the agent asks a person. */
const isAsking = ({ parts }: UIMessage): boolean =>
  parts.some(
    part =>
      (part.type === "dynamic-tool" && part.state === "approval-requested") ||
      (part.type === "data-question" && (part.data as { readonly status?: unknown }).status === "pending")
  )

const approvalIn = ({ parts }: UIMessage): string | undefined => {
  for (const part of parts) {
    if (part.type === "dynamic-tool" && part.state === "approval-requested") return part.approval.id
  }
  return undefined
}

/** What a chat does in one turn. */
export interface Part {
  /** The id of the user's message, and its text. */
  readonly key: string
  readonly text: string
  /** Whether it sends the message, or shows the history and resumes, as another tab does. */
  readonly sends: boolean
  /**
   * What is done after a failure: the stream is resumed, the last message is sent again, or that of the user, which attach
   * to the turn.
   */
  readonly again: (attempt: number) => "resume" | "send last" | "send user's"
  /** The answer to a request for approval, if this client gives it. */
  readonly approval?: boolean
  /** Waits until a person has answered. */
  readonly decided: Effect.Effect<void>
}

export class ChatClient {
  private constructor(
    private readonly nodes: Nodes,
    private readonly name: string,
    private readonly path: string,
    private readonly headers: Readonly<Record<string, string>>,
    private readonly watched: Watched
  ) {}

  static open(
    nodes: Nodes,
    sessionId: string,
    kind: Transport,
    token: string
  ): Effect.Effect<ChatClient, never, Scope.Scope> {
    const path = "/api/v1/chat/echo"
    const headers = { authorization: `Bearer ${token}` }
    return Effect.map(
      open(`${nodes.url}${path}`, kind, { id: sessionId }, token),
      watched => new ChatClient(nodes, `${kind} chat ${sessionId}`, `${path}/${sessionId}`, headers, watched)
    )
  }

  get messages(): ReadonlyArray<UIMessage> {
    return this.watched.chat.messages
  }

  /** Stops the turn in progress. */
  get stop(): Effect.Effect<unknown> {
    return request(this.nodes, `${this.path}/stream`, { method: "DELETE", headers: this.headers })
  }

  /** Follows a turn to its end. */
  follow(part: Part): Effect.Effect<void> {
    let attempts = 0
    return this.nodes.persist(Effect.suspend(() => this.attempt(part, attempts++)))
  }

  private has(key: string): boolean {
    return this.messages.some(({ id }) => id === key)
  }

  /** Replaces the messages by those of the service, as a page does that is loaded. */
  private get reload(): Effect.Effect<void> {
    return Effect.map(request(this.nodes, `${this.path}/messages`, { headers: this.headers }), text => {
      this.watched.chat.messages = JSON.parse(text)
    })
  }

  /** The agent's message in a turn. */
  private answerTo(key: string): UIMessage | undefined {
    const index = this.messages.findLastIndex(({ id }) => id === key)
    return this.messages.slice(index + 1).findLast(({ role }) => role === "assistant")
  }

  private hasEnded(key: string): boolean {
    return this.statusOf(key) !== undefined
  }

  private statusOf(key: string): string | undefined {
    return ((this.answerTo(key)?.metadata ?? {}) as { readonly status?: string }).status
  }

  private note(key: string): void {
    const { error, status } = this.watched.chat
    this.nodes.note(`${this.name} ${key}: ${status}, ${String(error)}, turn ${this.statusOf(key) ?? "running"}`)
  }

  private attempt(part: Part, attempt: number): Effect.Effect<Option.Option<void>> {
    const { chat } = this.watched
    const { again, approval, decided, key, sends, text } = part
    const parts = [{ type: "text" as const, text }]
    return Effect.gen(this, function* () {
      if (!sends && !this.has(key)) {
        yield* this.reload
        yield* settled(() => chat.resumeStream())
      } else if (!this.has(key)) {
        yield* settled(() => chat.sendMessage({ id: key, role: "user", parts }))
      } else {
        const how = again(attempt)
        if (how === "resume") yield* settled(() => chat.resumeStream())
        else if (how === "send last") yield* settled(() => chat.sendMessage())
        else yield* settled(() => chat.sendMessage({ messageId: key, role: "user", parts }))
      }
      const answer = this.answerTo(key)
      this.note(key)
      if (this.hasEnded(key)) return Option.some(undefined)
      if (answer === undefined || chat.status === "error" || !isAsking(answer)) return Option.none()
      const id = approvalIn(answer)
      if (approval !== undefined && id !== undefined) {
        yield* settled(async () => chat.addToolApprovalResponse({ id, approved: approval }))
        yield* settled(() => chat.sendMessage())
        this.note(key)
        return this.hasEnded(key) ? Option.some(undefined) : Option.none()
      }
      yield* decided
      // The answer to a question is a message of the user, which this client does not have.
      if (id === undefined) yield* this.reload
      return Option.none()
    })
  }
}
