/**
 * The names that clients of other protocols give to sessions: the id of a chat, or of a thread. A name of the form of a
 * session's id is that session. Each other name is stored with the id of its session, which is created on first use.
 */
import { hash } from "node:crypto"
import { Context, Effect, Layer, Option, Schema } from "effect"
import { JsonText } from "../../base/Json/JsonText.ts"
import { Store } from "../../Kv/Store.ts"
import { ifVersion } from "../../Kv/Write.ts"
import { Clients } from "../Clients.ts"
import type { AnswerOf } from "../Protocol/Answer.ts"
import { type Session, SessionId } from "../Protocol/Fields.ts"
import { ofGateway } from "../Protocol/Namespaces.ts"
import type { Refused, RequestError } from "../Requests.ts"
import { isSessionId } from "../Sessions/Session/SessionRecords.ts"
import { type Caller, SessionNotFound } from "../Sessions.ts"

/** Finds the sessions of names. A tenant has its own names. */
export class Threads extends Context.Tag("causeway/GatewayThreads")<
  Threads,
  {
    /**
     * The session of a name; none if the name was never used. `SessionNotFound` if its session was deleted, or if the name is
     * the id of no session.
     */
    readonly find: (caller: Caller, name: string) => Effect.Effect<Option.Option<Session>, RequestError | Refused>
    /** The same, and on first use a new session, also for requests at the same time, on any node. */
    readonly open: (caller: Caller, name: string, agentType: string) => Effect.Effect<Session, RequestError | Refused>
  }
>() {}

/** What is stored of a name, once its session exists: a name whose session is missing is that of a deleted one. */
const ThreadText = Schema.parseJson(Schema.Struct({ name: Schema.String, sessionId: SessionId }))

const decode = Schema.decodeOption(ThreadText)
const encode = Schema.encodeSync(ThreadText)

/** The entry of a name, which may have any characters. */
const addressOf = ({ tenant }: Caller, name: string) => ({
  namespace: ofGateway(tenant, "threads"),
  key: hash("sha256", name, "hex")
})

const isMissing = (error: RequestError | Refused): boolean =>
  "_tag" in error ? error._tag === "SessionNotFound" : error.failure.code === "not_found"

const make = Effect.gen(function* () {
  const store = yield* Store
  const { execute, sessions } = yield* Clients

  const sessionOf = (caller: Caller, sessionId: string, name = sessionId) =>
    execute(caller, { type: "get_session", id: "thread", sessionId }).pipe(
      Effect.map(answer => (answer as AnswerOf<"session">).session),
      Effect.catchIf(isMissing, () => new SessionNotFound({ sessionId: name }))
    )

  const find: Threads["Type"]["find"] = (caller, name) =>
    Effect.gen(function* () {
      if (isSessionId(name)) return Option.some(yield* sessionOf(caller, name))
      const { key, namespace } = addressOf(caller, name)
      const known = Option.flatMap(yield* store.get(namespace, key), ({ value }) => decode(value))
      if (Option.isNone(known)) return Option.none<Session>()
      return Option.some(yield* sessionOf(caller, known.value.sessionId, name))
    })

  /** A session and its name, which has none yet. */
  const create = (caller: Caller, name: string, agentType: string) =>
    sessions.create(caller, { agentType }, undefined, sessionId => ({
      ...{ op: "set", ...addressOf(caller, name), value: JsonText(encode({ name, sessionId })), expiresAt: null },
      precondition: ifVersion(0)
    }))

  const open: Threads["Type"]["open"] = (caller, name, agentType) =>
    Effect.flatMap(
      find(caller, name),
      Option.match({
        onSome: Effect.succeed,
        onNone: () =>
          Effect.catchAll(create(caller, name, agentType), error =>
            // Another request may have been faster.
            Effect.flatMap(
              find(caller, name),
              Option.match({ onSome: Effect.succeed, onNone: () => Effect.fail(error) })
            )
          )
      })
    )

  return Threads.of({ find, open })
})

/** Finds the sessions of names in the store. */
export const layer: Layer.Layer<Threads, never, Clients | Store> = Layer.effect(Threads, make)
