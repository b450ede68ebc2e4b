/**
 * A client of the gateway: sessions with agents, their events, and their files.
 */
import { ConnectionFailed, refused } from "./Errors.ts"
import type { Answer, AnswerOf, RequestFrame } from "./GatewayFrames.ts"
import { GatewayLink } from "./GatewayLink.ts"
import { type CallOptions, Requests, type Token } from "./Requests.ts"
import type { OnLoss } from "./RequestTable.ts"
import { ConnectionClosed } from "./SessionErrors.ts"
import type {
  ConnectionStatus,
  FileContent,
  FileEntry,
  FileIteration,
  Position,
  Session,
  SessionUpdate
} from "./SessionModel.ts"
import { Subscriptions } from "./Subscription.ts"
import { type Clock, iterable, systemClock } from "./Time.ts"
import type { WebSocketConstructor } from "./WebSocket.ts"

/** Where the gateway is, and who asks. */
export interface SessionsOptions {
  /** The address of the service, such as `https://gateway.example.com`; `wss:` is taken too. */
  readonly baseUrl: string
  /** The JSON Web Token, or a function that is asked for it at each try; none in dev mode. */
  readonly token?: Token
  /** Where the gateway is mounted; `/ws` without it. */
  readonly path?: string
  /** Milliseconds that an answer may take, the wait for a connection included; 60,000 without it. */
  readonly timeoutMs?: number
  /** Bytes of events that may wait for a subscriber, two for each character of their text; 8 MiB without it. */
  readonly maxQueuedBytes?: number
  /** The most characters of a frame that are taken, 64 Mi without it; a larger one is `ResponseTooLarge`. */
  readonly maxResponseBytes?: number
  /** Is told when there is a connection, and when there is none. */
  readonly onStatus?: (status: ConnectionStatus) => void
  /** For hosts that have no WebSocket of their own. */
  readonly WebSocket?: WebSocketConstructor
  readonly fetch?: typeof globalThis.fetch
  /** For tests. */
  readonly clock?: Clock
}

/** What an agent is launched with. */
export interface Launch {
  /** Where and how the agent is deployed; passed to the platform unchanged. */
  readonly deployment?: unknown
  readonly environment?: { readonly [name: string]: string }
  /** Kept in the memory of the gateway only. */
  readonly secrets?: { readonly [name: string]: string }
}

export interface CreateOptions extends CallOptions, Launch {
  readonly title?: string
}

/** Replaces what the session was launched with before, member by member. */
export interface StartOptions extends CallOptions, Launch {}

export interface ListSessionsOptions extends CallOptions {
  /** The most sessions in a page, 1 to 200; 200 without it. */
  readonly limit?: number
  /** The `cursor` of an earlier page, to go on behind it. */
  readonly cursor?: string
}

/** Sessions, the newest first. */
export interface SessionPage {
  readonly sessions: ReadonlyArray<Session>
  /** Where the next page begins; absent on the last one. */
  readonly cursor?: string
}

export interface SendOptions extends CallOptions {
  /** Unique in the session, so that the message is sent once, however often it is repeated; a random one without it. */
  readonly clientMessageId?: string
}

/** A message that is being sent to the agent. */
export interface SentMessage {
  /** The turn that it has started. */
  readonly turnId: string | undefined
  readonly clientMessageId: string
}

export interface InterruptOptions extends CallOptions {
  /** The turn in progress without it. */
  readonly turnId?: string
}

export interface ListFilesOptions extends CallOptions {
  /** A directory, relative to the workspace; its root without it. */
  readonly path?: string
  /** Levels to list; 1 without it. */
  readonly depth?: number
}

export interface SubscribeOptions extends CallOptions {
  /** The last position that is known; from the first event that is kept without it. */
  readonly after?: Position
}

/**
 * A client of the gateway. Calls fail with a `SessionsError`. There is one connection, which is opened when it is needed
 * and again when it is lost while something waits for it.
 */
export interface Sessions {
  /** Connects now. Fails with the first try, where calls would wait for another one. */
  readonly connect: () => Promise<void>
  /** Ends the connection. Whatever waits, and every later call, fails with `ConnectionClosed`. */
  readonly close: () => void
  readonly create: (agentType: string, options?: CreateOptions) => Promise<Session>
  /** The sessions of the tenant, page by page, each page read as it is asked for. */
  readonly list: (options?: ListSessionsOptions) => AsyncIterable<SessionPage>
  readonly get: (sessionId: string, options?: CallOptions) => Promise<Session>
  /** Starts an instance of the agent. Returns when the session is active. */
  readonly start: (sessionId: string, options?: StartOptions) => Promise<Session>
  /** Stops the instance. Returns when the session is inactive. */
  readonly stop: (sessionId: string, options?: CallOptions) => Promise<Session>
  /** Deletes a session and its history. */
  readonly delete: (sessionId: string, options?: CallOptions) => Promise<void>
  /** Sends a message, once, even where it takes several connections. The events of the session tell what comes of it. */
  readonly send: (sessionId: string, content: string, options?: SendOptions) => Promise<SentMessage>
  /** Answers a question or a request for approval, once. */
  readonly answer: (sessionId: string, requestId: string, answer: unknown, options?: SendOptions) => Promise<void>
  /** Interrupts a turn. Returns its id. */
  readonly interrupt: (sessionId: string, options?: InterruptOptions) => Promise<string | undefined>
  readonly listFiles: (sessionId: string, options?: ListFilesOptions) => Promise<ReadonlyArray<FileEntry>>
  readonly readFile: (sessionId: string, path: string, options?: CallOptions) => Promise<FileContent>
  /** All iterations of a file, the oldest first. */
  readonly fileHistory: (
    sessionId: string,
    path: string,
    options?: CallOptions
  ) => Promise<ReadonlyArray<FileIteration>>
  readonly fileAtIteration: (
    sessionId: string,
    path: string,
    iteration: number,
    options?: CallOptions
  ) => Promise<FileContent>
  /**
   * The events of a session after a position, then what comes, without gap or double over lost connections and restarts
   * of the gateway.
   *
   * Where a reader falls behind by more than `maxQueuedBytes`, the rest is asked for again when it has caught up.
   */
  readonly subscribe: (sessionId: string, options?: SubscribeOptions) => AsyncIterable<SessionUpdate>
}

/** 128 random bits. `crypto.randomUUID` is not there on pages without TLS. */
export const randomId = (): string =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), byte => byte.toString(16).padStart(2, "0")).join("")

/** Makes a client of the gateway. It connects with the first call. Throws `BadRequest` where there is no WebSocket. */
export const makeSessions = (options: SessionsOptions): Sessions => {
  const {
    clock = systemClock,
    fetch = globalThis.fetch,
    timeoutMs = 60_000,
    WebSocket = globalThis.WebSocket
  } = options
  if (WebSocket === undefined) throw refused("There is no WebSocket here: the option WebSocket must give one")
  const requests = new Requests({
    base: new URL(options.baseUrl).href.replace(/^ws/, "http").replace(/\/+$/, ""),
    token: options.token ?? "",
    fetch: fetch.bind(globalThis),
    timeoutMs,
    maxResponseBytes: options.maxResponseBytes ?? 64 * 1024 * 1024,
    clock
  })
  const subscriptions = new Subscriptions(() => link, clock, options.maxQueuedBytes ?? 8 * 1024 * 1024)
  const link: GatewayLink = new GatewayLink({
    requests,
    path: options.path ?? "/ws",
    WebSocket,
    timeoutMs,
    listener: subscriptions,
    onStatus: options.onStatus
  })

  const ask = async <Type extends Answer["type"]>(
    type: Type,
    frame: RequestFrame,
    signal: AbortSignal | undefined,
    onLoss: OnLoss = "repeat"
  ): Promise<AnswerOf<Type>> => {
    const answer = await link.ask(frame, { onLoss, signal })
    if (answer.type !== type) throw new ConnectionFailed(`${frame.type} was answered by ${answer.type}`, false)
    return answer as AnswerOf<Type>
  }

  const file = async (frame: RequestFrame, signal: AbortSignal | undefined): Promise<FileContent> => {
    const { id, type, ...content } = await ask("file_content", frame, signal)
    return content
  }

  return {
    connect: () => link.open(),
    close: () => link.end(new ConnectionClosed("The client was closed", 1000)),
    create: async (agentType, { signal, ...rest } = {}) =>
      (await ask("session_created", { type: "create_session", agentType, ...rest }, signal, "fail")).session,
    list: ({ cursor: first, limit, signal } = {}) =>
      iterable(clock, signal, async function* (signal) {
        for (let cursor = first, isMore = true; isMore; ) {
          const frame = {
            type: "list_sessions",
            ...(limit !== undefined && { limit }),
            ...(cursor && { cursor })
          } as const
          const { id, type, ...page } = await ask("session_list", frame, signal)
          yield page
          cursor = page.cursor
          isMore = cursor !== undefined
        }
      }),
    get: async (sessionId, { signal } = {}) =>
      (await ask("session", { type: "get_session", sessionId }, signal)).session,
    start: async (sessionId, { signal, ...rest } = {}) =>
      (await ask("session", { type: "start_session", sessionId, ...rest }, signal)).session,
    stop: async (sessionId, { signal } = {}) =>
      (await ask("session", { type: "stop_session", sessionId }, signal)).session,
    delete: async (sessionId, { signal } = {}) => {
      await ask("session_deleted", { type: "delete_session", sessionId }, signal, "fail")
    },
    send: async (sessionId, content, { clientMessageId = randomId(), signal } = {}) => {
      const frame = { type: "send_message", sessionId, content, clientMessageId } as const
      const { turnId } = await ask("accepted", frame, signal)
      return { turnId, clientMessageId }
    },
    answer: async (sessionId, requestId, answer, { clientMessageId = randomId(), signal } = {}) => {
      await ask("accepted", { type: "answer", sessionId, requestId, answer, clientMessageId }, signal)
    },
    interrupt: async (sessionId, { signal, ...turn } = {}) =>
      (await ask("accepted", { type: "interrupt_turn", sessionId, ...turn }, signal, "fail")).turnId,
    listFiles: async (sessionId, { signal, ...below } = {}) =>
      (await ask("file_list", { type: "list_files", sessionId, ...below }, signal)).entries,
    readFile: (sessionId, path, { signal } = {}) => file({ type: "read_file", sessionId, path }, signal),
    fileHistory: async (sessionId, path, { signal } = {}) =>
      (await ask("file_history_list", { type: "file_history", sessionId, path }, signal)).iterations,
    fileAtIteration: (sessionId, path, iteration, { signal } = {}) =>
      file({ type: "file_at_iteration", sessionId, path, iteration }, signal),
    subscribe: (sessionId, { after, signal } = {}) =>
      iterable(clock, signal, signal => subscriptions.read(sessionId, after, signal))
  }
}
