/**
 * The fixed script that runs against a service with a failing disk: writes, reads and a turn of a session, with
 * a follower of the change feed. The answers are recorded, to be checked against what the service has.
 */
import { Effect, Fiber, Option, Scope, Stream } from "effect"
import type { Change } from "../../src/Kv/Api.ts"
import * as Session from "../Gateway/survival/Client.ts"
import { Witness } from "../Gateway/survival/Witness.ts"
import { check } from "../history/Checker.ts"
import type * as H from "../history/History.ts"
import { Recorder } from "../history/Recorder.ts"
import * as ClientOf from "../service/Client.ts"
import type { Running } from "../service/Service.ts"

/** The steps of the script, in order; `expiry` waits for what the service writes by itself. */
export const moments = [
  "put",
  "put large",
  "batch",
  "delete",
  "get",
  "list",
  "poll",
  "turn",
  "replay",
  "expiry"
] as const

/** A step of the script. */
export type Moment = (typeof moments)[number]

/** What clients of all processes over one directory sent and were answered. */
export class Notes {
  /** Writes, and what is read between them. Its times and those of the service are of one clock. */
  readonly recorder = new Recorder("faults", 1000)
  readonly witness = new Witness()
  readonly followed: Array<typeof Change.Type> = []
  /** Violations that no fault excuses, in sentences. */
  readonly wrong: Array<string> = []
  sessionId: string | undefined
  private count = 0

  /** A unique name for a write. */
  nextActor(): string {
    return `writer-${++this.count}`
  }
}

const namespace = "tenant:a/x"
const expiring = "expiring"

/** Statuses that a failing disk excuses. */
const isExcused = (status: number): boolean => status === 503

/** A request that failed in a way that a failing disk excuses. */
const excused = <A, E extends { readonly _tag: string }>(
  notes: Notes,
  moment: string,
  work: Effect.Effect<A, E>
): Effect.Effect<Option.Option<A>> =>
  Effect.catchAll(Effect.asSome(work), error => {
    const isUnanswered = ClientOf.isUnanswered(error) || error._tag === "Gone"
    const status = ClientOf.statusOf(error)
    const isDefect = error._tag === "Refused" && "answer" in error && String(error.answer).includes("Internal error")
    if (!isUnanswered && !(status !== undefined && isExcused(status)) && (error._tag !== "Refused" || isDefect)) {
      notes.wrong.push(`${moment} failed with ${JSON.stringify(error)}`)
    }
    return Effect.succeedNone
  })

/** Clients of one running service. */
export interface Clients {
  readonly perform: (moment: Moment) => Effect.Effect<void>
  /** Writes until a write is acknowledged. */
  readonly recovered: Effect.Effect<void>
  /** Sends messages until a turn is completed. */
  readonly conversed: Effect.Effect<void>
  /** Waits until the follower has every record, and returns all violations. */
  readonly findings: Effect.Effect<ReadonlyArray<string>>
}

/** The pause before a retry, in real time. */
const pause = Effect.promise(() => new Promise<void>(resolve => setTimeout(resolve, 100)))

/** Connects clients to a service for as long as the scope lasts. */
export const connect = (service: Running, bearer: string, notes: Notes) =>
  Effect.gen(function* () {
    const client = yield* ClientOf.make(service.url)
    const { recorder, witness } = notes

    /** Sends an operation that is recorded. */
    const recorded = <R extends H.Result, E>(action: H.Action, sent: Effect.Effect<R, E>) =>
      Effect.suspend(() => {
        const id = recorder.invoke("client", "node", action)
        return sent.pipe(
          Effect.tap(result => Effect.sync(() => recorder.ok(id, result))),
          Effect.tapErrorCause(() => Effect.sync(() => recorder.unknown(id, "it failed")))
        )
      })

    const write = (operations: readonly [H.Operation, ...Array<H.Operation>]) =>
      Effect.suspend(() => {
        const actor = notes.nextActor()
        const [only] = operations
        const options = { actor, ...("ttlMs" in only ? { ttlMs: only.ttlMs } : {}) }
        const sent =
          operations.length > 1
            ? Effect.map(client.batch(operations, { actor }), results => ({ results }))
            : only.op === "set"
              ? Effect.map(client.set(only.namespace, only.key, only.value, options), ({ version }) => ({
                  results: [{ version }]
                }))
              : Effect.map(client.delete(only.namespace, only.key, { actor }), deleted => ({ results: [{ deleted }] }))
        const by = operations.length > 1 ? "batch" : only.op === "set" ? "put" : "delete"
        return recorded({ type: "write", by, actor, operations }, sent)
      })

    const set = (key: string, value: unknown) => ({ op: "set", namespace, key, value }) as const

    /** The session's client, which reconnects whenever its connection is lost. */
    let socket: Session.Client | undefined
    const session = <A, E>(use: (client: Session.Client, sessionId: string) => Effect.Effect<A, E>) =>
      Effect.gen(function* () {
        const connected = socket ?? (yield* Session.connect(`${service.url.replace("http", "ws")}/ws`, bearer, witness))
        socket = connected
        if (notes.sessionId === undefined) {
          const created = yield* connected.get("session_created", id => ({
            type: "create_session",
            id,
            agentType: "echo"
          }))
          notes.sessionId = created.session.id
        }
        const { sessionId } = notes
        yield* connected.follow(sessionId)
        return yield* use(connected, sessionId)
      }).pipe(
        Effect.tapError(() =>
          Effect.sync(() => {
            socket = undefined
          })
        )
      )

    const turn = session((connected, sessionId) =>
      Effect.gen(function* () {
        const { turnId = "" } = yield* connected.get("accepted", id => ({
          type: "send_message",
          id,
          sessionId,
          content: "/long 5"
        }))
        witness.accept(sessionId, turnId)
        return yield* connected.ended(turnId)
      })
    )

    /** The whole history, as a new client receives it. */
    const replay = Effect.gen(function* () {
      const fresh = new Witness()
      const { sessionId } = notes
      if (sessionId === undefined) return []
      const connected = yield* Session.connect(`${service.url.replace("http", "ws")}/ws`, bearer, fresh)
      yield* connected.follow(sessionId)
      return [...fresh.contradictions, ...witness.judge(sessionId, fresh.history(sessionId))]
    }).pipe(Effect.scoped)

    /** An entry that lives for a millisecond, in a namespace of its own, until its deletion has been followed. */
    const expiry = Effect.gen(function* () {
      const set = { op: "set", namespace: expiring, key: "short-lived", value: 1, ttlMs: 1 } as const
      const { results } = yield* write([set])
      const [result] = results
      const version = result !== undefined && "version" in result ? result.version : 0
      yield* Effect.repeat(pause, {
        until: () => notes.followed.some(change => change.namespace === expiring && change.version > version)
      })
    })

    const steps: Readonly<Record<Moment, Effect.Effect<unknown, { readonly _tag: string }, Scope.Scope>>> = {
      put: write([set("small", 1)]),
      "put large": write([set("large", "x".repeat(100_000))]),
      batch: write([set("a", [1]), set("b", [2]), { op: "delete", namespace, key: "a" }, set("c", "y".repeat(9000))]),
      delete: write([{ op: "delete", namespace, key: "small" }]),
      get: client.get(namespace, "large"),
      list: client.entries(namespace),
      poll: client.poll(0),
      turn,
      replay,
      expiry
    }

    const scope = yield* Effect.scope
    const perform = (moment: Moment) => Effect.asVoid(excused(notes, moment, Scope.extend(steps[moment], scope)))

    const follower = yield* Effect.forkScoped(
      Effect.forever(
        Effect.suspend(() =>
          excused(
            notes,
            "following",
            Stream.runForEach(client.events(notes.followed.at(-1)?.seq ?? 0), change =>
              Effect.sync(() => notes.followed.push(change))
            )
          )
        ).pipe(Effect.zipRight(pause))
      )
    )

    const retrying = <A, E extends { readonly _tag: string }>(moment: string, work: Effect.Effect<A, E>) =>
      Effect.suspend(() => excused(notes, moment, work)).pipe(
        Effect.tap(found => (Option.isSome(found) ? Effect.void : pause)),
        Effect.repeat({ until: Option.isSome }),
        Effect.map(Option.getOrThrow)
      )

    let judged = 0
    const findings = Effect.gen(function* () {
      const log = yield* retrying("poll", client.poll(0))
      yield* Effect.raceFirst(
        Effect.repeat(pause, { until: () => notes.followed.length >= log.length }),
        Effect.zipRight(Fiber.join(follower), Effect.dieMessage("The follower ended"))
      )
      // The service itself writes the records of sessions.
      const ours = log.filter(change => [namespace, expiring].includes(change.namespace))
      const changes = ours.map((change, index) => ({ ...change, seq: index + 1 }))
      const lastSeq = changes.length
      const items = yield* retrying("list", client.entries(namespace))
      const poll = { type: "poll", follower: `reader ${++judged}`, after: 0, limit: lastSeq + 1, wait: 0 } as const
      yield* recorded(poll, Effect.succeed({ changes, lastSeq }))
      const list = { type: "list", namespace, prefix: "" } as const
      yield* recorded(list, Effect.succeed({ items, lastSeq, more: false }))
      const last = recorder.events.at(-1)!
      const end: H.End = { type: "end", time: last.time + 1, wall: last.wall }
      const violations = check({ header: recorder.header, events: [...recorder.events, end] })
      const events = yield* retrying("replay", replay)
      return [
        ...notes.wrong,
        ...witness.contradictions,
        ...events,
        ...log.flatMap(({ seq }, index) =>
          seq === index + 1 ? [] : [`seq ${seq} is at the position of ${index + 1}`]
        ),
        ...log.flatMap((change, index) =>
          JSON.stringify(change) === JSON.stringify(notes.followed[index])
            ? []
            : [`seq ${change.seq} was followed as ${JSON.stringify(notes.followed[index])}`]
        ),
        ...violations.map(({ message, rule }) => `${rule}: ${message}`)
      ]
    })

    return {
      perform,
      recovered: retrying(
        "put",
        Effect.suspend(() => write([set("recovered", recorder.ended)]))
      ),
      conversed: Effect.repeat(
        Effect.tap(retrying("turn", Scope.extend(turn, scope)), end =>
          end === "turn_completed" ? Effect.void : pause
        ),
        { until: end => end === "turn_completed" }
      ),
      findings
    }
  })
