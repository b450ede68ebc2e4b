/**
 * The sessions of all tenants. This is the port; `Sessions/Registry.ts` implements it.
 */
import { Context, type Effect, type Redacted, Schema, type Scope } from "effect"
import { ownKey } from "../Client/Conversation/Conversation.ts"
import type { StoreBusy, StoreUnavailable } from "../Kv/Store.ts"
import type { SetOperation } from "../Kv/Write.ts"
import type { AgentPlatformConnectionError, FileCallError } from "../Upstream/AgentPlatform.ts"
import type { FileContent, FileEntry, FileIteration } from "../Upstream/Workspace.ts"
import type { AnswerOf } from "./Protocol/Answer.ts"
import type { Session } from "./Protocol/Fields.ts"
import type { RequestOf } from "./Protocol/Request.ts"
import type { SessionElsewhere, SessionUnreadable } from "./SessionEvents.ts"
import type { SessionOwner } from "./SessionNodes.ts"

/**
 * A run of a client's protocol, to which a message or an answer belongs. It is recorded with the turn: `runReceipt` is the
 * id of its receipt.
 */
export interface ClientRun {
  readonly id: string
  /** Of what the run was requested with. The same run with another digest is a conflict. */
  readonly digest: string
  /** What the agent gets in addition to the message or the answer. */
  readonly input?: unknown
}

/** The id of the receipt of a run. */
export const runReceipt = (runId: string): string => ownKey(`run ${runId}`)

/**
 * The id of the receipt of a request that was answered, by the history and by the number of the event that has asked: an
 * agent may use the id of a request again. Only the session keeps it, so that one answer counts, of whatever client.
 */
export const answerReceipt = (epoch: string, seq: number): string => ownKey(`answer ${epoch} ${seq}`)

/** The caller. A tenant sees its own sessions only. */
export interface Caller {
  readonly tenant: string
  /** Recorded as the author of changes. */
  readonly actor: string
  /**
   * Identifies a call that may be repeated after its answer was lost between two nodes. A message or an answer to the
   * agent is carried out once for each id.
   */
  readonly commandId?: string
  /** As a `clientMessageId`, of the gateway's own: see `ownKey`. `interrupt` then withdraws a message with it. */
  readonly key?: string
  /** The run that a message or an answer belongs to. */
  readonly run?: ClientRun
  /** Whether the caller is another node that has subscribers to the session. `get` keeps that in mind for a while. */
  readonly hasSubscribers?: boolean
  /**
   * Whether `get` waits until the messages that are on their way are recorded, or have failed. From then on {@link run} can
   * be interrupted.
   */
  readonly awaitsMessages?: boolean
  /** Whether the caller gets a session to follow its turn. */
  readonly resumes?: boolean
  /** Whether a turn is interrupted a second later, unless a caller of any node {@link resumes} in the meantime. */
  readonly unlessResumed?: boolean
}

/** A session with its secrets, which a node that shuts down transfers to another node. */
export interface TransferredSession {
  /** `<tenant>/<id>`. */
  readonly session: string
  readonly from: SessionOwner
  readonly secrets: Readonly<Record<string, Redacted.Redacted>>
}

/** The parameters of `create_session`, without the envelope of the request. */
export interface CreateSession extends Omit<RequestOf<"create_session">, "type" | "id"> {}

/** The parts of the session that a start replaces. */
export interface StartSession extends Pick<CreateSession, "deployment" | "environment" | "secrets"> {}

/** The parameters of `list_sessions`, without the envelope of the request. */
export type ListSessions = {
  readonly [Name in "limit" | "cursor" | "order" | "running" | "waiting" | "failed"]?:
    | RequestOf<"list_sessions">[Name]
    | undefined
}

/** A page of a tenant's sessions, by default the newest first by `createdAt`, then `id`. */
export interface SessionPage extends Omit<AnswerOf<"session_list">, "type" | "id"> {}

/** The cursor is invalid. */
export class InvalidCursor extends Schema.TaggedError<InvalidCursor>()("InvalidCursor", {}) {
  override get message(): string {
    return "The cursor is invalid"
  }
}

/** The order of a list cannot be combined with its filter. */
export class InvalidList extends Schema.TaggedError<InvalidList>()("InvalidList", { message: Schema.String }) {}

const message = { message: Schema.String }

/** There is no such session, or it belongs to another tenant. Callers cannot distinguish the two. */
export class SessionNotFound extends Schema.TaggedError<SessionNotFound>()("SessionNotFound", {
  sessionId: Schema.String
}) {}

/** The session that was to be created exists, or is being created or deleted. */
export class SessionExists extends Schema.TaggedError<SessionExists>()("SessionExists", {
  sessionId: Schema.String
}) {}

/** A session with this chosen id cannot be created. */
export class InvalidSessionId extends Schema.TaggedError<InvalidSessionId>()("InvalidSessionId", message) {}

/** The state of the session does not allow the call. */
export class SessionConflict extends Schema.TaggedError<SessionConflict>()("SessionConflict", message) {}

/** The session has no running instance, or it was stopped in the meantime. */
export class SessionNotActive extends Schema.TaggedError<SessionNotActive>()("SessionNotActive", {
  ...message,
  /** Whether the same call would activate the session later. */
  mayPass: Schema.optional(Schema.Boolean)
}) {}

/** A limit is exceeded. The message has the limit and the actual value. */
export class SessionTooLarge extends Schema.TaggedError<SessionTooLarge>()("SessionTooLarge", message) {}

/** The gateway is at its capacity. The same call may succeed later. */
export class SessionsBusy extends Schema.TaggedError<SessionsBusy>()("SessionsBusy", message) {}

/** The agent platform did not bring the instance up within `SESSION_ACTIVATION_TIMEOUT`. */
export class ActivationTimeout extends Schema.TaggedError<ActivationTimeout>()("ActivationTimeout", message) {}

/** Why a session cannot be found or used at present. */
export type LookupError = SessionElsewhere | SessionNotFound | SessionsBusy | StoreBusy | StoreUnavailable

/** Why a session cannot be activated. It is a conflict if secrets or the launch configuration were lost. */
export type ActivationError =
  | LookupError
  | SessionNotActive
  | SessionConflict
  | ActivationTimeout
  | AgentPlatformConnectionError

/** Why a session cannot be created. */
export type CreationError =
  | InvalidSessionId
  | SessionConflict
  | SessionExists
  | SessionTooLarge
  | SessionsBusy
  | StoreBusy
  | StoreUnavailable

/** An event as subscribers receive it. */
export interface Frame {
  readonly seq: number
  readonly type: string
  /** The frame's text in UTF-8. */
  readonly data: Buffer
}

/** The callbacks of one subscription to a session. */
export interface Subscriber {
  /** Called with each event once, in order, after it was stored. It must not block or throw. */
  readonly onFrames: (frames: ReadonlyArray<Frame>) => void
  /** Called when the session was deleted. No event follows. */
  readonly onDeleted: () => void
  /** Called when the session's history was lost. No event follows; a new subscription gets another epoch. */
  readonly onLost: () => void
}

/** The start of a subscription. Every event with a `seq` above `headSeq` is passed to the subscriber. */
export interface Subscription {
  readonly session: Session
  readonly epoch: string
  readonly headSeq: number
  readonly trimmedSeq: number
  /** Whether the session belongs to another node. Then `session` is the stored record, which may be slightly stale. */
  readonly isElsewhere: boolean
  /** The newest `seq` that was passed to subscribers. */
  readonly publishedSeq: () => number
  /** Reads up to `limit` stored events after a `seq`. After `trimmedSeq` there is no gap. */
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

/** Sessions, their instances and their turns. Interrupting a call does not interrupt an activation, which is shared. */
export class Sessions extends Context.Tag("causeway/Sessions")<
  Sessions,
  {
    /**
     * Creates a session, with an id of the caller's if one is given: the time of its creation in 12 hexadecimal digits,
     * which may differ from that of this node by a minute, and 24 random digits. `also` is an entry that is written with
     * the session: both, or neither.
     */
    readonly create: (
      caller: Caller,
      request: CreateSession,
      id?: string,
      also?: (sessionId: string) => SetOperation
    ) => Effect.Effect<Session, CreationError>
    /** A page of sessions. It may have fewer than `limit` although others follow. */
    readonly list: (
      caller: Caller,
      page?: ListSessions
    ) => Effect.Effect<SessionPage, InvalidCursor | InvalidList | SessionsBusy | StoreUnavailable>
    readonly get: (caller: Caller, sessionId: string) => Effect.Effect<Session, LookupError>
    /** Activates the session, or joins the activation in progress. `given` is used from the next instance on. */
    readonly start: (
      caller: Caller,
      sessionId: string,
      given?: StartSession
    ) => Effect.Effect<Session, ActivationError | SessionTooLarge>
    /** Stops the session's instance and ends its turns; an activation in progress is canceled. */
    readonly stop: (caller: Caller, sessionId: string) => Effect.Effect<Session, LookupError>
    /** Stops the session, and removes it and its history. */
    readonly remove: (caller: Caller, sessionId: string) => Effect.Effect<void, LookupError>
    /** A subscription ends with its scope. */
    readonly subscribe: (
      caller: Caller,
      sessionId: string,
      subscriber: Subscriber
    ) => Effect.Effect<Subscription, LookupError, Scope.Scope>
    /**
     * Starts a turn, after activating the session. Returns the turn's id once the message is sent. Idempotent with a
     * `clientMessageId`; a conflict if its content differs.
     */
    readonly send: (
      caller: Caller,
      sessionId: string,
      content: string,
      clientMessageId?: string
    ) => Effect.Effect<string, ActivationError>
    /**
     * Asks the agent to end a turn, by default that of the caller's run or the one in progress, and returns its id. A message
     * that has not been sent is withdrawn, also while the instance starts. With a key nothing else is done.
     */
    readonly interrupt: (
      caller: Caller,
      sessionId: string,
      turnId: string | undefined
    ) => Effect.Effect<string, LookupError | SessionNotActive | SessionConflict | AgentPlatformConnectionError>
    /** Sends an answer to the agent. A request has one: another one is a conflict, the same by the same key is not. */
    readonly answer: (
      caller: Caller,
      sessionId: string,
      requestId: string,
      answer: unknown,
      clientMessageId?: string
    ) => Effect.Effect<void, LookupError | SessionNotActive | SessionConflict | AgentPlatformConnectionError>
    /** File calls activate the session first. */
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
    /** Takes over a session of another node with its secrets. Returns whether it has done so. */
    readonly adopt: (transferred: TransferredSession) => Effect.Effect<boolean, SessionsBusy | StoreUnavailable>
    /** The number of subscriptions. */
    readonly subscriptions: () => number
  }
>() {}
