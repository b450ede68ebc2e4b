/**
 * The clients of the key-value store and of the gateway for programs in Effect: the plain clients with the clock, the
 * random numbers and the errors of Effect.
 */
import * as Plain from "../Client.ts"

export type {
  AgentMessage,
  ConnectionStatus,
  Conversation,
  EventPage,
  FileContent,
  FileEntry,
  FileIteration,
  JsonFormat,
  Message,
  Part,
  Position,
  SentMessage,
  Session,
  SessionEvent,
  SessionPage,
  SessionUpdate,
  UserMessage
} from "../Client.ts"
export { Fold } from "../Client.ts"
export * from "./Errors.ts"
export { type ClientError, fromPlain, fromPlainSessions, type SessionsError } from "./Run.ts"

import { Context, Duration, Effect, Layer, Option, type Scope, Stream } from "effect"
import { ConnectionFailed } from "./Errors.ts"
import {
  type ClientError,
  call,
  clock,
  type Effectful,
  sessions as ofSessions,
  type SessionsError,
  streamOf,
  type Token,
  tokenOf,
  type WithoutSignal
} from "./Run.ts"

/** The service, the credential, and limits. */
export interface ClientOptions<E = never, R = never>
  extends Pick<
    Plain.ClientOptions,
    "baseUrl" | "prefix" | "maxResponseBytes" | "transports" | "WebSocket" | "fetch" | "json"
  > {
  /** The credential, or an effect that returns it for each attempt. */
  readonly token: Token<E, R>
  /** The time limit of an answer; default 30 seconds. */
  readonly timeout?: Duration.DurationInput
}

/** The start: the entries of a namespace, or a position of the log. */
export type FollowOptions = WithoutSignal<Plain.FollowOptions>

/** A client of the key-value store: `Client` of the plain client with effects and streams. */
export interface Service
  extends Omit<Effectful<Plain.Client, ClientError>, "get" | "getMany" | "getManyKeys" | "backup"> {
  readonly get: (
    namespace: string,
    key: string,
    options?: WithoutSignal<Plain.GetOptions>
  ) => Effect.Effect<Option.Option<Plain.Entry>, ClientError>
  readonly getMany: (
    addresses: ReadonlyArray<Plain.EntryAddress>
  ) => Effect.Effect<Plain.EntriesRead<Option.Option<Plain.Entry>>, ClientError>
  readonly getManyKeys: (
    addresses: ReadonlyArray<Plain.EntryAddress>
  ) => Effect.Effect<Plain.EntriesRead<Option.Option<Plain.EntryKey>>, ClientError>
  /** A snapshot of the whole store. Its content fails if the connection is lost before the end. */
  readonly backup: (
    options?: WithoutSignal<Plain.BackupOptions>
  ) => Effect.Effect<
    Omit<Plain.StoreBackup, "content"> & { readonly content: Stream.Stream<Uint8Array, ClientError> },
    ClientError
  >
}

/** The client as a service. */
export class Client extends Context.Tag("causeway/Client")<Client, Service>() {}

/** A body that is incomplete. */
const lost = (cause: unknown): ClientError =>
  new ConnectionFailed({ message: `The connection was lost: ${cause}`, cause, isTimeout: false })

const many = <A>(read: (signal: AbortSignal) => Promise<Plain.EntriesRead<A | undefined>>) =>
  Effect.map(call(read), read => ({ ...read, items: read.items.map(Option.fromNullable) }))

/** Makes a client. */
export const make = <E = never, R = never>(options: ClientOptions<E, R>): Effect.Effect<Service, never, R> =>
  Effect.gen(function* () {
    const { timeout = "30 seconds", token, ...rest } = options
    const client = Plain.makeClient({
      ...rest,
      token: yield* tokenOf(token),
      timeoutMs: Duration.toMillis(timeout),
      clock: yield* clock
    })
    return {
      get: (namespace, key, options) =>
        Effect.map(
          call(signal => client.get(namespace, key, { ...options, signal })),
          Option.fromNullable
        ),
      getMany: addresses => many(signal => client.getMany(addresses, { signal })),
      getManyKeys: addresses => many(signal => client.getManyKeys(addresses, { signal })),
      set: (namespace, key, value, options) =>
        call(signal => client.set(namespace, key, value, { ...options, signal })),
      delete: (namespace, key, options) => call(signal => client.delete(namespace, key, { ...options, signal })),
      deletePrefix: (namespace, prefix, options) =>
        call(signal => client.deletePrefix(namespace, prefix, { ...options, signal })),
      batch: (operations, options) => call(signal => client.batch(operations, { ...options, signal })),
      list: (namespace, options) => streamOf(client.list(namespace, options)),
      listKeys: (namespace, options) => streamOf(client.listKeys(namespace, options)),
      namespaces: options => streamOf(client.namespaces(options)),
      tenants: options => streamOf(client.tenants(options)),
      backup: options =>
        Effect.map(
          call(signal => client.backup({ ...options, signal })),
          ({ content, ...backup }) => ({
            ...backup,
            content: Stream.fromReadableStream({ evaluate: () => content, onError: lost })
          })
        ),
      follow: options => streamOf(client.follow(options))
    }
  })

/** The client as a layer. */
export const layer = <E = never, R = never>(options: ClientOptions<E, R>): Layer.Layer<Client, never, R> =>
  Layer.effect(Client, make(options))

/** The gateway, the credential, and limits. */
export interface SessionsOptions<E = never, R = never>
  extends Omit<Plain.SessionsOptions, "token" | "timeoutMs" | "clock"> {
  /** The JSON Web Token, or an effect that returns it for each attempt; none in dev mode. */
  readonly token?: Token<E, R>
  /**
   * The time limit of an answer, including the connection; default 60 seconds. It restarts with each event or answer
   * that is received, up to ten times its length.
   */
  readonly timeout?: Duration.DurationInput
}

/** A client of the gateway: `Sessions` of the plain client with effects and streams. Its scope closes it. */
export interface SessionsService extends Omit<Effectful<Plain.Sessions, SessionsError>, "connect" | "close"> {
  readonly connect: Effect.Effect<void, SessionsError>
}

/** The client of the gateway as a service. */
export class Sessions extends Context.Tag("causeway/Client/Sessions")<Sessions, SessionsService>() {}

/** Makes a client of the gateway. Its connection ends with the scope. */
export const makeSessions = <E = never, R = never>(
  options: SessionsOptions<E, R>
): Effect.Effect<SessionsService, never, R | Scope.Scope> =>
  Effect.gen(function* () {
    const { timeout = "60 seconds", token, ...rest } = options
    const plain = {
      ...rest,
      ...(token !== undefined && { token: yield* tokenOf(token) }),
      timeoutMs: Duration.toMillis(timeout),
      clock: yield* clock
    }
    const sessions = yield* Effect.acquireRelease(
      Effect.sync(() => Plain.makeSessions(plain)),
      sessions => Effect.sync(() => sessions.close())
    )
    return {
      connect: ofSessions.call(() => sessions.connect()),
      create: (agentType, options) => ofSessions.call(signal => sessions.create(agentType, { ...options, signal })),
      list: options => ofSessions.streamOf(sessions.list(options)),
      get: sessionId => ofSessions.call(signal => sessions.get(sessionId, { signal })),
      start: (sessionId, options) => ofSessions.call(signal => sessions.start(sessionId, { ...options, signal })),
      stop: sessionId => ofSessions.call(signal => sessions.stop(sessionId, { signal })),
      delete: sessionId => ofSessions.call(signal => sessions.delete(sessionId, { signal })),
      send: (sessionId, content, options) =>
        ofSessions.call(signal => sessions.send(sessionId, content, { ...options, signal })),
      answer: (sessionId, requestId, answer, options) =>
        ofSessions.call(signal => sessions.answer(sessionId, requestId, answer, { ...options, signal })),
      interrupt: (sessionId, options) =>
        ofSessions.call(signal => sessions.interrupt(sessionId, { ...options, signal })),
      listFiles: (sessionId, options) =>
        ofSessions.call(signal => sessions.listFiles(sessionId, { ...options, signal })),
      readFile: (sessionId, path) => ofSessions.call(signal => sessions.readFile(sessionId, path, { signal })),
      fileHistory: (sessionId, path) => ofSessions.call(signal => sessions.fileHistory(sessionId, path, { signal })),
      fileAtIteration: (sessionId, path, iteration) =>
        ofSessions.call(signal => sessions.fileAtIteration(sessionId, path, iteration, { signal })),
      events: (sessionId, options) => ofSessions.call(signal => sessions.events(sessionId, { ...options, signal })),
      subscribe: (sessionId, options) => ofSessions.streamOf(sessions.subscribe(sessionId, options))
    }
  })

/** The client of the gateway as a layer. */
export const layerSessions = <E = never, R = never>(
  options: SessionsOptions<E, R>
): Layer.Layer<Sessions, never, Exclude<R, Scope.Scope>> => Layer.scoped(Sessions, makeSessions(options))
