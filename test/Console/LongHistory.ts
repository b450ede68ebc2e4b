/** A store that has much in it, written by the service's own backends before it starts. */
import { Effect } from "effect"
import { JsonText } from "../../src/base/Json/JsonText.ts"
import { SessionEvents } from "../../src/Gateway/SessionEvents.ts"
import {
  encodeRecord,
  keyOf,
  namespaceOf,
  type SessionRecord,
  sessionId
} from "../../src/Gateway/Sessions/Session/SessionRecords.ts"
import { Store } from "../../src/Kv/Store.ts"
import * as Backends from "../../src/Storage/Backends.ts"

/** The body of an event as it is stored. */
export type Body = Readonly<Record<string, unknown>> & { readonly type: string }

/** The events of a turn, of which most are parts of texts. */
const turn = (number: number, events: number): ReadonlyArray<Body> => {
  const turnId = `turn-${number}`
  const ids = { turnId, messageId: `m-${number}`, thinkingId: `h-${number}`, callId: `c-${number}` }
  const before: ReadonlyArray<Body> = [
    { type: "turn_started", turnId, content: `question ${number}`, sub: "anna" },
    { type: "thinking_start", turnId, thinkingId: ids.thinkingId },
    { type: "thinking_delta", turnId, thinkingId: ids.thinkingId, text: "Let me look at the file. " },
    { type: "thinking_end", turnId, thinkingId: ids.thinkingId },
    { type: "tool_call_start", turnId, callId: ids.callId, name: "write_file" },
    { type: "tool_call", turnId, callId: ids.callId, name: "write_file", args: { path: `src/${number}.ts` } },
    { type: "tool_progress", turnId, callId: ids.callId, progress: 0.5 },
    { type: "tool_result", turnId, callId: ids.callId, result: { written: number } },
    { type: "file_changed", turnId, change: "modified", path: `src/${number % 200}.ts` },
    { type: "text_start", turnId, messageId: ids.messageId }
  ]
  const after: ReadonlyArray<Body> = [
    { type: "text_end", turnId, messageId: ids.messageId },
    { type: "usage_update", turnId, inputTokens: 10, outputTokens: 5 },
    { type: "turn_completed", turnId }
  ]
  const delta = (index: number): Body => ({
    type: "text_delta",
    turnId,
    messageId: ids.messageId,
    text: `answer ${number}, part ${index}${index % 7 === 6 ? ".\n" : ", "}`
  })
  return [...before, ...Array.from({ length: events - before.length - after.length }, (_, i) => delta(i)), ...after]
}

interface Talk {
  readonly tenant: string
  readonly title: string
}

interface Contents extends Talk {
  /** Events of the session, in turns of 50. */
  readonly events: number
  readonly namespace: string
  readonly keys: number
}

const perTurn = 50
const atOnce = 1000

const set = (namespace: string, key: string, value: string) =>
  ({ op: "set", namespace, key, value: JsonText(value), expiresAt: null }) as const

/** Writes a session with a history. Returns its id. */
const writeSession = ({ tenant, title }: Talk, bodies: ReadonlyArray<Body>) =>
  Effect.gen(function* () {
    const history = yield* SessionEvents
    const store = yield* Store
    const id = yield* sessionId
    const session = keyOf(tenant, id)
    const timestamp = 1_767_225_600_000
    const { epoch } = yield* history.open(session, "e_1")
    const texts = bodies.map((body, index) =>
      JSON.stringify({ ...body, sessionId: id, seq: index + 1, timestamp: timestamp + index, traceId: "t" })
    )
    for (let after = 0; after < texts.length; after += atOnce) {
      const part = texts.slice(after, after + atOnce)
      yield* history.append({ session, epoch, after, timestamp: Date.now(), texts: part, recoveryState: null })
    }
    const record: SessionRecord = {
      ...{ id, tenant, title, epoch, headSeq: texts.length, createdAt: timestamp, updatedAt: timestamp },
      agentType: "echo",
      state: "inactive",
      instanceId: null,
      secretNames: [],
      configured: [],
      titled: true
    }
    yield* store.commit({ actor: "fixture", operations: [set(namespaceOf(tenant), id, encodeRecord(record))] })
    return id
  })

const backend = (directory: string, events: number) =>
  Backends.sqlite({ directory, history: { events, bytes: 2 ** 30 } })

/** Fills a new store with one session. Returns its id. */
export const fillSession = (directory: string, talk: Talk, bodies: ReadonlyArray<Body>): Effect.Effect<string> =>
  writeSession(talk, bodies).pipe(Effect.provide(backend(directory, bodies.length)), Effect.orDie)

/** Fills a new store. Returns the id of its session. */
export const fill = (directory: string, { events, keys, namespace, ...talk }: Contents): Effect.Effect<string> =>
  Effect.gen(function* () {
    const store = yield* Store
    const turns = Array.from({ length: Math.ceil(events / perTurn) }, (_, index) => turn(index + 1, perTurn))
    const id = yield* writeSession(talk, turns.flat())
    for (let from = 0; from < keys; from += atOnce) {
      const operations = Array.from({ length: atOnce }, (_, index) =>
        set(namespace, `city-${String(from + index).padStart(5, "0")}`, String(index))
      )
      yield* store.commit({ actor: "fixture", operations })
    }
    return id
  }).pipe(Effect.provide(backend(directory, events)), Effect.orDie)
