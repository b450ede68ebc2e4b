/**
 * The names that clients of other protocols give to sessions: the id of a chat, or of a thread. A name of the form of a
 * session's id is that session. Each other name is stored with the id of its session, which is created on first use.
 */
import { hash } from "node:crypto"
import { Context, Effect, Layer, Option, Schedule, Schema } from "effect"
import { JsonText } from "../../base/Json/JsonText.ts"
import { type PreconditionFailed, Store, StoreUnavailable } from "../../Kv/Store.ts"
import { ifVersion } from "../../Kv/Write.ts"
import { Clients } from "../Clients.ts"
import type { AnswerOf } from "../Protocol/Answer.ts"
import type { Session } from "../Protocol/Fields.ts"
import { ofGateway } from "../Protocol/Namespaces.ts"
import type { Refused, RequestError } from "../Requests.ts"
import { isSessionId, sessionId } from "../Sessions/Session/SessionRecords.ts"
import { type Caller, SessionNotFound } from "../Sessions.ts"

/** Finds the sessions of names. A tenant has its own names. */
export class Threads extends Context.Tag("causeway/GatewayThreads")<
  Threads,
  {
    /** The session of a name; none if the name was never used. `SessionNotFound` if its session was deleted. */
    readonly find: (caller: Caller, name: string) => Effect.Effect<Option.Option<Session>, RequestError | Refused>
    /** The same, and on first use a new session, also for requests at the same time, on any node. */
    readonly open: (caller: Caller, name: string, agentType: string) => Effect.Effect<Session, RequestError | Refused>
  }
>() {}

/** What is stored of a name. Until `isCreated` nothing was done with the session, whose creation may be cut short. */
const Thread = Schema.Struct({ name: Schema.String, sessionId: Schema.String, isCreated: Schema.Boolean })
type Thread = (typeof Thread)["Type"]

const ThreadText = Schema.parseJson(Thread)
const decode = Schema.decodeOption(ThreadText)
const encode = Schema.encodeSync(ThreadText)

interface Stored {
  readonly thread: Thread
  readonly version: number
}

/** The entry of a name, which may have any characters. */
const addressOf = ({ tenant }: Caller, name: string) => ({
  namespace: ofGateway(tenant, "threads"),
  key: hash("sha256", name, "hex")
})

const unknown = (name: string) => new SessionNotFound({ sessionId: name })

/** Attempts to open a name that other requests open at the same time. */
const attempts = 8

/** The pauses while another node creates a session: 5 s in all. */
const untilCreated = Schedule.intersect(Schedule.spaced("50 millis"), Schedule.recurs(100))

const make = Effect.gen(function* () {
  const store = yield* Store
  const { execute, sessions } = yield* Clients

  const stored = (caller: Caller, name: string): Effect.Effect<Stored | undefined, StoreUnavailable> => {
    const { key, namespace } = addressOf(caller, name)
    return Effect.map(store.get(namespace, key), found => {
      if (Option.isNone(found)) return undefined
      const { value, version } = found.value
      return Option.match(decode(value), { onNone: () => undefined, onSome: thread => ({ thread, version }) })
    })
  }

  /** Stores what a name means, unless it has changed since a version, which is 0 for an absent one. */
  const keep = (caller: Caller, thread: Thread, version: number) =>
    store
      .commit({
        actor: caller.actor,
        operations: [
          {
            op: "set",
            ...addressOf(caller, thread.name),
            value: JsonText(encode(thread)),
            expiresAt: null,
            precondition: ifVersion(version)
          }
        ]
      })
      .pipe(
        Effect.catchTag("IdempotencyConflict", Effect.die),
        Effect.map(({ results: [result] }) => ({ thread, version: result?.op === "set" ? result.version : 0 }))
      )

  const sessionOf = (caller: Caller, id: string): Effect.Effect<Session, RequestError | Refused> =>
    Effect.map(
      execute(caller, { type: "get_session", id: "thread", sessionId: id }),
      answer => (answer as AnswerOf<"session">).session
    )

  const isMissing = (error: RequestError | Refused): boolean =>
    "_tag" in error ? error._tag === "SessionNotFound" : error.failure.code === "not_found"

  const found = (caller: Caller, id: string) =>
    sessionOf(caller, id).pipe(
      Effect.asSome,
      Effect.catchIf(isMissing, () => Effect.succeedNone)
    )

  /** Remembers that the session was created, before anything is done with it: once it is deleted, the name has none. */
  const confirm = (caller: Caller, { thread, version }: Stored) =>
    thread.isCreated ? Effect.void : keep(caller, { ...thread, isCreated: true }, version)

  const create = (caller: Caller, stored: Stored, agentType: string) => {
    const { sessionId } = stored.thread
    return sessions.create(caller, { agentType }, sessionId).pipe(
      // Another node may be creating it, and has not stored its record yet.
      Effect.catchTag("SessionExists", () =>
        Effect.retry(sessionOf(caller, sessionId), { while: isMissing, schedule: untilCreated })
      ),
      Effect.tap(() => confirm(caller, stored))
    )
  }

  const open = (
    caller: Caller,
    name: string,
    agentType: string,
    left = attempts
  ): Effect.Effect<Session, RequestError | Refused | PreconditionFailed> =>
    Effect.gen(function* () {
      const known = yield* stored(caller, name)
      if (known !== undefined) {
        const session = yield* found(caller, known.thread.sessionId)
        if (Option.isSome(session)) return yield* Effect.as(confirm(caller, known), session.value)
        if (known.thread.isCreated) return yield* unknown(name)
      }
      const fresh = Effect.flatMap(sessionId, id =>
        keep(caller, { name, sessionId: id, isCreated: false }, known?.version ?? 0)
      )
      const created = yield* known === undefined
        ? Effect.flatMap(fresh, thread => create(caller, thread, agentType))
        : // Its creation is in progress, or was cut short: the id is too old then.
          Effect.catchTag(create(caller, known, agentType), "InvalidSessionId", () =>
            Effect.flatMap(fresh, thread => create(caller, thread, agentType))
          )
      return created
    }).pipe(
      Effect.catchIf(
        error => "_tag" in error && error._tag === "PreconditionFailed" && left > 0,
        () => open(caller, name, agentType, left - 1)
      )
    )

  return Threads.of({
    find: (caller, name) =>
      isSessionId(name)
        ? found(caller, name)
        : Effect.gen(function* () {
            const known = yield* stored(caller, name)
            if (known?.thread.isCreated !== true) return Option.none()
            const session = yield* found(caller, known.thread.sessionId)
            return Option.isNone(session) ? yield* unknown(name) : session
          }),
    open: (caller, name, agentType) =>
      isSessionId(name)
        ? sessionOf(caller, name)
        : Effect.catchTag(open(caller, name, agentType), "PreconditionFailed", () =>
            Effect.fail(new StoreUnavailable({ reason: "the name of the session changes too often" }))
          )
  })
})

/** Finds the sessions of names in the store. */
export const layer: Layer.Layer<Threads, never, Clients | Store> = Layer.effect(Threads, make)
