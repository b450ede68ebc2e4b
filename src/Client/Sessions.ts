/** A client of the gateway: sessions with agents, their events, and their files. */
import { ConnectionClosed, ConnectionFailed, refused } from "./Errors.ts"
import { type CallOptions, Requests, type Token, type WebSocketConstructor } from "./Requests.ts"
import type {
  ConnectionStatus,
  EventPage,
  FileContent,
  FileEntry,
  FileIteration,
  Position,
  Session
} from "./SessionModel.ts"
import { HttpLink } from "./Sessions/HttpLink.ts"
import { GatewayLink, type Link, type LinkOptions } from "./Sessions/Link.ts"
import { Pages } from "./Sessions/Pages.ts"
import type { Answer, AnswerOf, OnLoss, RequestFrame } from "./Sessions/Requests.ts"
import { Subscriptions } from "./Sessions/Subscription.ts"
import type { SessionUpdate } from "./SessionUpdate.ts"
import { type Clock, iterable } from "./Time.ts"

/** The gateway, the credential, and limits. */
export interface SessionsOptions {
  /** The address of the service, such as `https://gateway.example.com`; `wss:` is possible too. */
  readonly baseUrl: string
  /** The JSON Web Token, or a function that returns it for each attempt; none in dev mode. */
  readonly token?: Token
  /**
   * How the gateway is reached; default `webSocket`. `http` is for networks that block WebSockets: each call is a request,
   * and each subscription a stream of Server-Sent Events. Files are not available then.
   */
  readonly transport?: "webSocket" | "http"
  /** The path of the gateway; default `/ws`, and over HTTP `/api/v1`. */
  readonly path?: string
  /**
   * The time limit of an answer, including the connection, in milliseconds; default 60,000. Each event or answer that is
   * received restarts the time, up to ten times as long in total: the answer may be queued behind a long history.
   */
  readonly timeoutMs?: number
  /** The maximum size of the queue of a subscriber in bytes, two for each character of its events; default 8 MiB. */
  readonly maxQueuedBytes?: number
  /** The maximum number of characters of a frame; default 64 Mi. A larger one fails with `ResponseTooLarge`. */
  readonly maxResponseBytes?: number
  /** Called when a connection is open, and when it is lost. */
  readonly onStatus?: (status: ConnectionStatus) => void
  /** For hosts without a global WebSocket. */
  readonly WebSocket?: WebSocketConstructor
  readonly fetch?: typeof globalThis.fetch
  /** For tests. */
  readonly clock?: Clock
}

/** The configuration of an agent. */
export interface Launch {
  /** Where and how the agent is deployed; passed to the platform unchanged. */
  readonly deployment?: unknown
  readonly environment?: { readonly [name: string]: string }
  /** Kept only in the memory of the gateway. */
  readonly secrets?: { readonly [name: string]: string }
}

/** Options of a new session. */
export interface CreateOptions extends CallOptions, Launch {
  readonly title?: string
}

/** Replaces the earlier configuration of the session, member by member. */
export interface StartOptions extends CallOptions, Launch {}

/** Options of a list of sessions. */
export interface ListSessionsOptions extends CallOptions {
  /** The maximum number of sessions in a page, 1 to 200; default 200. */
  readonly limit?: number
  /** The `cursor` of an earlier page with the same order and filter, to continue after it. */
  readonly cursor?: string
  /**
   * The newest first (`created`, the default), or the last active first (`activity`). By activity no session is skipped;
   * one that becomes active between two pages may come twice, with its newer state the second time.
   */
  readonly order?: "created" | "activity"
  /** Only sessions in which a turn is in progress, or is not. Requires the order `activity`, as the next ones do. */
  readonly running?: boolean
  /** Only sessions that wait for a person, or do not. */
  readonly waiting?: boolean
  /** Only sessions that have failed, or have not. */
  readonly failed?: boolean
}

/** Sessions in the order of the list. */
export interface SessionPage {
  readonly sessions: ReadonlyArray<Session>
  /** The cursor of the next page; absent on the last one. */
  readonly cursor?: string
}

/** Options of a message or an answer. */
export interface SendOptions extends CallOptions {
  /** Unique in the session: however often the message is repeated, it is sent once. Default a random one. */
  readonly clientMessageId?: string
}

/** A message that the gateway has accepted. */
export interface SentMessage {
  /** The turn that it started. */
  readonly turnId: string | undefined
  readonly clientMessageId: string
}

/** Options of an interrupt. */
export interface InterruptOptions extends CallOptions {
  /** Default the turn in progress. */
  readonly turnId?: string
}

/** Options of a list of files. */
export interface ListFilesOptions extends CallOptions {
  /** A directory relative to the workspace; default its root. */
  readonly path?: string
  /** Levels to list; default 1. */
  readonly depth?: number
}

/** Options of a subscription. */
export interface SubscribeOptions extends CallOptions {
  /** The last known position; default the start of the kept history. */
  readonly after?: Position
  /**
   * Whether the conversation comes first, instead of all events up to it: without `after`, or if the position is lost.
   */
  readonly fold?: boolean
}

/** Options of a page of older events. */
export interface EventsOptions extends CallOptions {
  /** Only events with a smaller `seq`; default the newest ones. */
  readonly beforeSeq?: number
  /** The history of `beforeSeq`. If there is another one, the page is empty. */
  readonly epoch?: string
  /** The maximum number of events, 1 to 1000; default 100. */
  readonly limit?: number
}

/**
 * A client of the gateway. Calls fail with a `SessionsError`. It has one connection, which is opened when it is needed,
 * and again after a loss while it is still needed.
 */
export interface Sessions {
  /** Connects now. Fails if the first attempt fails, while other calls wait for the next one. */
  readonly connect: () => Promise<void>
  /** Ends the connection. All pending and later calls fail with `ConnectionClosed`. */
  readonly close: () => void
  readonly create: (agentType: string, options?: CreateOptions) => Promise<Session>
  /** The sessions of the tenant, page by page. Each page is requested when it is consumed. */
  readonly list: (options?: ListSessionsOptions) => AsyncIterable<SessionPage>
  readonly get: (sessionId: string, options?: CallOptions) => Promise<Session>
  /** Starts an instance of the agent. Returns when the session is active. */
  readonly start: (sessionId: string, options?: StartOptions) => Promise<Session>
  /** Stops the instance. Returns when the session is inactive. */
  readonly stop: (sessionId: string, options?: CallOptions) => Promise<Session>
  /** Deletes a session and its history. */
  readonly delete: (sessionId: string, options?: CallOptions) => Promise<void>
  /** Sends a message once, even over several connections. The events of the session show its outcome. */
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
   * The events of a session after a position, and new ones, without gaps or duplicates over lost connections and
   * restarts of the gateway.
   *
   * If a reader falls behind by more than `maxQueuedBytes`, later events are requested again when it has caught up.
   */
  readonly subscribe: (sessionId: string, options?: SubscribeOptions) => AsyncIterable<SessionUpdate>
  /** A page of the newest events before a position, the oldest first. It does not affect subscriptions. */
  readonly events: (sessionId: string, options?: EventsOptions) => Promise<EventPage>
}

/** 128 random bits. `crypto.randomUUID` is absent on pages without TLS. */
export const randomId = (): string =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), byte => byte.toString(16).padStart(2, "0")).join("")

/** The calls that are requests to the gateway. */
const callsOf = (link: Link, clock: Clock): Omit<Sessions, "connect" | "close" | "subscribe" | "events"> => {
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
    create: async (agentType, { signal, ...rest } = {}) =>
      (await ask("session_created", { type: "create_session", agentType, ...rest }, signal, "fail")).session,
    list: ({ cursor: first, signal, ...selection } = {}) =>
      iterable(clock, signal, async function* (signal) {
        for (let cursor = first, isMore = true; isMore; ) {
          const frame = { type: "list_sessions", ...selection, ...(cursor && { cursor }) } as const
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
      file({ type: "file_at_iteration", sessionId, path, iteration }, signal)
  }
}

/** The way to the gateway that the options select. */
const linkOf = (
  { onStatus, path, transport = "webSocket", WebSocket = globalThis.WebSocket }: SessionsOptions,
  options: Pick<LinkOptions, "requests" | "timeoutMs" | "listener">
): Link => {
  if (transport === "http") return new HttpLink({ ...options, path: path ?? "/api/v1", onStatus })
  if (WebSocket === undefined) throw refused("There is no WebSocket here: the option WebSocket must give one")
  return new GatewayLink({ ...options, path: path ?? "/ws", WebSocket, onStatus })
}

/** Makes a client of the gateway. It connects with the first call. Throws `BadRequest` if there is no WebSocket. */
export const makeSessions = (options: SessionsOptions): Sessions => {
  const { baseUrl, clock, fetch, maxResponseBytes, timeoutMs = 60_000 } = options
  const base = new URL(baseUrl).href.replace(/^ws/, "http").replace(/\/+$/, "")
  const requests = new Requests({ base, token: options.token ?? "", fetch, timeoutMs, maxResponseBytes, clock })
  const subscriptions = new Subscriptions(() => link, requests.clock, options.maxQueuedBytes ?? 8 * 1024 * 1024)
  const pages = new Pages(() => link, requests.clock, timeoutMs)
  const link: Link = linkOf(options, { requests, timeoutMs, listener: { subscriptions, pages } })
  return {
    ...callsOf(link, requests.clock),
    connect: () => link.open(),
    close: () => link.end(new ConnectionClosed("The client was closed", 1000)),
    subscribe: (sessionId, { after, fold = false, signal } = {}) =>
      iterable(requests.clock, signal, signal => subscriptions.read(sessionId, after, fold, signal)),
    events: async (sessionId, { beforeSeq = Number.MAX_SAFE_INTEGER, epoch, limit = 100, signal } = {}) =>
      pages.read({ sessionId, beforeSeq, limit, epoch }, signal)
  }
}
