/** The client of the gateway for programs in Effect. */
import { Context, Duration, Effect, Layer, type Scope, type Stream } from "effect"
import * as Plain from "../Client.ts"
import type { SessionsError } from "./Errors.ts"
import { sessions as calls, clock, type Token, tokenOf, type WithoutSignal } from "./Run.ts"

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

/** A client of the gateway. `Sessions` of the plain client documents the members. */
export interface SessionsService {
  readonly connect: Effect.Effect<void, SessionsError>
  readonly create: (
    agentType: string,
    options?: WithoutSignal<Plain.CreateOptions>
  ) => Effect.Effect<Plain.Session, SessionsError>
  readonly list: (options?: WithoutSignal<Plain.ListSessionsOptions>) => Stream.Stream<Plain.SessionPage, SessionsError>
  readonly get: (sessionId: string) => Effect.Effect<Plain.Session, SessionsError>
  readonly start: (
    sessionId: string,
    options?: WithoutSignal<Plain.StartOptions>
  ) => Effect.Effect<Plain.Session, SessionsError>
  readonly stop: (sessionId: string) => Effect.Effect<Plain.Session, SessionsError>
  readonly delete: (sessionId: string) => Effect.Effect<void, SessionsError>
  readonly send: (
    sessionId: string,
    content: string,
    options?: WithoutSignal<Plain.SendOptions>
  ) => Effect.Effect<Plain.SentMessage, SessionsError>
  readonly answer: (
    sessionId: string,
    requestId: string,
    answer: unknown,
    options?: WithoutSignal<Plain.SendOptions>
  ) => Effect.Effect<void, SessionsError>
  readonly interrupt: (
    sessionId: string,
    options?: WithoutSignal<Plain.InterruptOptions>
  ) => Effect.Effect<string | undefined, SessionsError>
  readonly listFiles: (
    sessionId: string,
    options?: WithoutSignal<Plain.ListFilesOptions>
  ) => Effect.Effect<ReadonlyArray<Plain.FileEntry>, SessionsError>
  readonly readFile: (sessionId: string, path: string) => Effect.Effect<Plain.FileContent, SessionsError>
  readonly fileHistory: (
    sessionId: string,
    path: string
  ) => Effect.Effect<ReadonlyArray<Plain.FileIteration>, SessionsError>
  readonly fileAtIteration: (
    sessionId: string,
    path: string,
    iteration: number
  ) => Effect.Effect<Plain.FileContent, SessionsError>
  readonly subscribe: (
    sessionId: string,
    options?: WithoutSignal<Plain.SubscribeOptions>
  ) => Stream.Stream<Plain.SessionUpdate, SessionsError>
}

/** The client of the gateway as a service. */
export class Sessions extends Context.Tag("causeway/Client/Sessions")<Sessions, SessionsService>() {}

const { call, streamOf } = calls

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
      connect: call(() => sessions.connect()),
      create: (agentType, options) => call(signal => sessions.create(agentType, { ...options, signal })),
      list: options => streamOf(sessions.list(options)),
      get: sessionId => call(signal => sessions.get(sessionId, { signal })),
      start: (sessionId, options) => call(signal => sessions.start(sessionId, { ...options, signal })),
      stop: sessionId => call(signal => sessions.stop(sessionId, { signal })),
      delete: sessionId => call(signal => sessions.delete(sessionId, { signal })),
      send: (sessionId, content, options) => call(signal => sessions.send(sessionId, content, { ...options, signal })),
      answer: (sessionId, requestId, answer, options) =>
        call(signal => sessions.answer(sessionId, requestId, answer, { ...options, signal })),
      interrupt: (sessionId, options) => call(signal => sessions.interrupt(sessionId, { ...options, signal })),
      listFiles: (sessionId, options) => call(signal => sessions.listFiles(sessionId, { ...options, signal })),
      readFile: (sessionId, path) => call(signal => sessions.readFile(sessionId, path, { signal })),
      fileHistory: (sessionId, path) => call(signal => sessions.fileHistory(sessionId, path, { signal })),
      fileAtIteration: (sessionId, path, iteration) =>
        call(signal => sessions.fileAtIteration(sessionId, path, iteration, { signal })),
      subscribe: (sessionId, options) => streamOf(sessions.subscribe(sessionId, options))
    }
  })

/** The client of the gateway as a layer. */
export const layerSessions = <E = never, R = never>(
  options: SessionsOptions<E, R>
): Layer.Layer<Sessions, never, Exclude<R, Scope.Scope>> => Layer.scoped(Sessions, makeSessions(options))
