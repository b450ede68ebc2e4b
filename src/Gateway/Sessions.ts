/**
 * The sessions of all tenants. This is the port; `Sessions/Registry.ts` is what stands behind it.
 */
import { Context, type Effect, type Redacted, Schema, type Scope } from "effect"
import type { StoreBusy, StoreUnavailable } from "../Kv/Store.ts"
import type { AgentPlatformConnectionError, FileCallError } from "../Upstream/AgentPlatform.ts"
import type { FileContent, FileEntry, FileIteration } from "../Upstream/Workspace.ts"
import type { Session } from "./Protocol/Session.ts"
import type { SessionUnreadable } from "./SessionEvents.ts"

/** Who asks. A tenant sees its own sessions and no others. */
export interface Caller {
  readonly tenant: string
  /** Recorded as the writer of what the caller changes. */
  readonly actor: string
}

/** What a session is made from. */
export interface CreateSession {
  readonly agentType: string
  readonly title?: string | undefined
  readonly deployment?: unknown
  readonly environment?: Readonly<Record<string, string>> | undefined
  readonly secrets?: Readonly<Record<string, Redacted.Redacted>> | undefined
}

/** What a start may give: each takes the place of what the session had. */
export interface StartSession extends Pick<CreateSession, "deployment" | "environment" | "secrets"> {}

/** Which page of a list is wanted. */
export interface ListSessions {
  /** Most sessions of the page, 1 to 200; 200 where absent. */
  readonly limit?: number | undefined
  /** That of the page before; absent for the first. */
  readonly cursor?: string | undefined
}

/** A page of a tenant's sessions, the newest first by `createdAt`, then `id`. */
export interface SessionPage {
  readonly sessions: ReadonlyArray<Session>
  /** Leads to the next page; absent on the last one. */
  readonly cursor?: string
}

/** The cursor is none that a page came with. */
export class InvalidCursor extends Schema.TaggedError<InvalidCursor>()("InvalidCursor", {}) {
  override get message(): string {
    return "The cursor is none that an answer came with"
  }
}

/** There is no such session, or it belongs to another tenant: a caller cannot tell which. */
export class SessionNotFound extends Schema.TaggedError<SessionNotFound>()("SessionNotFound", {
  sessionId: Schema.String
}) {}

/** The session's state does not allow what was asked. */
export class SessionConflict extends Schema.TaggedError<SessionConflict>()("SessionConflict", {
  message: Schema.String
}) {}

/** The session has no instance, and what was asked does not start one; or it was stopped meanwhile. */
export class SessionNotActive extends Schema.TaggedError<SessionNotActive>()("SessionNotActive", {
  message: Schema.String,
  /** Whether the same would start an instance later on. */
  mayPass: Schema.optional(Schema.Boolean)
}) {}

/** Something is over its limit; the message names limit and figure. */
export class SessionTooLarge extends Schema.TaggedError<SessionTooLarge>()("SessionTooLarge", {
  message: Schema.String
}) {}

/** The gateway has as much to do as it takes on; the same may succeed later. */
export class SessionsBusy extends Schema.TaggedError<SessionsBusy>()("SessionsBusy", {
  message: Schema.String
}) {}

/** The platform did not bring an instance up in time. */
export class ActivationTimeout extends Schema.TaggedError<ActivationTimeout>()("ActivationTimeout", {
  message: Schema.String
}) {}

/** What any look at a session may fail with. */
export type LookupError = SessionNotFound | SessionsBusy | StoreBusy | StoreUnavailable

/** What bringing a session up may fail with; a conflict where secrets or the launch configuration were lost. */
export type ActivationError =
  | LookupError
  | SessionNotActive
  | SessionConflict
  | ActivationTimeout
  | AgentPlatformConnectionError

/** Events on their way to subscribers. */
export interface Frame {
  readonly seq: number
  readonly type: string
  /** The frame's text in UTF-8. */
  readonly data: Buffer
}

/** Whoever wants to hear of a session's events. */
export interface Subscriber {
  /** Told of each event once, in order and only after it was stored. It must not block or throw. */
  readonly onFrames: (frames: ReadonlyArray<Frame>) => void
  /** Told when the session was deleted: nothing more comes. */
  readonly onDeleted: () => void
  /** Told when the session's history was lost: nothing more comes, and whoever subscribes anew finds another epoch. */
  readonly onLost: () => void
}

/** A subscription at the moment at which it began: every event with a greater `seq` will be told. */
export interface Subscription {
  readonly session: Session
  /** Where the session's history stood. */
  readonly epoch: string
  readonly headSeq: number
  readonly trimmedSeq: number
  /** The newest `seq` that subscribers were told. */
  readonly toldSeq: () => number
  /** Up to `limit` events after a place, as stored, and the oldest place from which they go on without a gap. */
  readonly read: (
    after: number,
    limit: number
  ) => Effect.Effect<
    { readonly frames: ReadonlyArray<Frame>; readonly trimmedSeq: number },
    SessionUnreadable | StoreUnavailable
  >
}

/** A file of a session's workspace. */
export interface FileRequest {
  readonly sessionId: string
  readonly path: string
}

/**
 * Sessions, their instances and their turns.
 *
 * Whoever leaves a call half-way harms nobody else: an activation goes on for those who wait for it, and for itself.
 */
export class Sessions extends Context.Tag("causeway/Sessions")<
  Sessions,
  {
    readonly create: (
      caller: Caller,
      request: CreateSession
    ) => Effect.Effect<Session, SessionTooLarge | SessionConflict | SessionsBusy | StoreBusy | StoreUnavailable>
    /** A page of the sessions of the caller's tenant. It may have fewer than `limit` although others follow. */
    readonly list: (
      caller: Caller,
      page?: ListSessions
    ) => Effect.Effect<SessionPage, InvalidCursor | SessionsBusy | StoreUnavailable>
    readonly get: (caller: Caller, sessionId: string) => Effect.Effect<Session, LookupError>
    /**
     * Brings the session up, or joins whoever does. What is given takes the place of what it had, with the next
     * instance that is brought up.
     */
    readonly start: (
      caller: Caller,
      sessionId: string,
      given?: StartSession
    ) => Effect.Effect<Session, ActivationError | SessionTooLarge>
    /** Stops the session's instance, ending its turns; one that is being brought up is given up. */
    readonly stop: (caller: Caller, sessionId: string) => Effect.Effect<Session, LookupError>
    /** Stops the session, and removes it with its history. */
    readonly remove: (caller: Caller, sessionId: string) => Effect.Effect<void, LookupError>
    /** Begins a subscription, which lasts as long as the scope. */
    readonly subscribe: (
      caller: Caller,
      sessionId: string,
      subscriber: Subscriber
    ) => Effect.Effect<Subscription, LookupError, Scope.Scope>
    /**
     * Begins a turn, bringing the session up first; answers the turn's id once the message is on its way. With a
     * `clientMessageId` it is sent once, however often it is asked for: the answer is the same, or a conflict where
     * another content is given.
     */
    readonly send: (
      caller: Caller,
      sessionId: string,
      content: string,
      clientMessageId?: string
    ) => Effect.Effect<string, ActivationError>
    /** Asks the agent to end a turn, the one at work where none is named; answers its id. */
    readonly interrupt: (
      caller: Caller,
      sessionId: string,
      turnId: string | undefined
    ) => Effect.Effect<string, LookupError | SessionNotActive | SessionConflict | AgentPlatformConnectionError>
    /** Passes an answer on to the agent, with a `clientMessageId` once. */
    readonly answer: (
      caller: Caller,
      sessionId: string,
      requestId: string,
      answer: unknown,
      clientMessageId?: string
    ) => Effect.Effect<void, LookupError | SessionNotActive | SessionConflict | AgentPlatformConnectionError>
    /** File calls bring the session up first. */
    readonly listFiles: (
      caller: Caller,
      sessionId: string,
      options: { readonly path?: string | undefined; readonly depth?: number | undefined }
    ) => Effect.Effect<ReadonlyArray<FileEntry>, ActivationError | FileCallError>
    readonly readFile: (
      caller: Caller,
      file: FileRequest
    ) => Effect.Effect<FileContent, ActivationError | FileCallError>
    readonly fileHistory: (
      caller: Caller,
      file: FileRequest
    ) => Effect.Effect<ReadonlyArray<FileIteration>, ActivationError | FileCallError>
    readonly fileAtIteration: (
      caller: Caller,
      file: FileRequest,
      iteration: number
    ) => Effect.Effect<FileContent, ActivationError | FileCallError>
    /** Subscriptions at present. */
    readonly subscriptions: () => number
  }
>() {}
