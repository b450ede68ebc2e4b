/**
 * How a node learns that the history of a session has changed, on whichever node: by notifications that name sessions by
 * a hash, and by asking for the ends of those that are watched, which alone is relied on.
 */
import { Array as Arr, Effect, type Scope } from "effect"
import type { StoreUnavailable } from "../../../Kv/Store.ts"
import * as Supervision from "../../../Supervision.ts"
import { texts } from "../Database/Encoding.ts"
import * as Notifications from "../Database/Notifications.ts"
import type { Pool } from "../Database/Pool.ts"
import type { Statement } from "../Database/Statement.ts"

/** The payload of a notification is hashes of sessions, or says that any may have changed. */
export const channel = "causeway_sessions"

const any = "*"

/** Between two notifications of a node, as each takes a lock of the whole server at its commit. */
const notifyInterval = "10 millis"

/** A payload has fewer than 8,000 bytes. */
const maxInPayload = 900
const maxPayloads = 10

/** Between two questions for the ends of watched histories, with notifications and without. */
const askInterval = { listening: "1 second", polling: "150 millis" } as const

/** Sessions that are asked for at once. */
const portion = 1000

const headsStatement: Statement = {
  name: "heads_of_sessions",
  text: `SELECT s.session, h.epoch, h.head FROM unnest($1::text[]) s(session)
    LEFT JOIN causeway.histories h ON h.session = s.session`
}

/** FNV-1a of the UTF-16 code units, as 8 hexadecimal digits. It is the same on all nodes. */
export const hashOf = (session: string): string => {
  let hash = 0x811c9dc5
  for (let index = 0; index < session.length; index++) {
    hash = Math.imul(hash ^ session.charCodeAt(index), 0x01000193)
  }
  return (hash >>> 0).toString(16).padStart(8, "0")
}

/** Hashes as payloads of notifications. */
export const payloadsOf = (hashes: ReadonlySet<string>): ReadonlyArray<string> => {
  const all = [...hashes]
  if (all.length > maxPayloads * maxInPayload) return [any]
  return Arr.chunksOf(all, maxInPayload).map(some => some.join(""))
}

type OnChange = () => void

/** The sessions that a node watches. */
export class SessionSignals {
  private readonly watched = new Map<string, Set<OnChange>>()
  private readonly byHash = new Map<string, Set<string>>()
  private readonly occupancy = new Supervision.Occupancy()
  private pending = new Set<string>()
  private onPending: () => void = () => {}
  /** Whether there may be other nodes to be told. */
  hasOthers = true
  /** Whether notifications arrive. */
  isListening = false

  /** Calls back soon after the history of a session may have changed. Returns how to stop that. */
  watch(session: string, onChange: OnChange): () => void {
    const known = this.watched.get(session)
    if (known !== undefined) known.add(onChange)
    else {
      this.watched.set(session, new Set([onChange]))
      const hash = hashOf(session)
      const alike = this.byHash.get(hash)
      if (alike === undefined) this.byHash.set(hash, new Set([session]))
      else alike.add(session)
    }
    this.occupancy.set(true)
    return () => this.unwatch(session, onChange)
  }

  private unwatch(session: string, onChange: OnChange): void {
    const watchers = this.watched.get(session)
    if (watchers === undefined || !watchers.delete(onChange) || watchers.size > 0) return
    this.watched.delete(session)
    const hash = hashOf(session)
    const alike = this.byHash.get(hash)
    alike?.delete(session)
    if (alike?.size === 0) this.byHash.delete(hash)
    this.occupancy.set(this.watched.size > 0)
  }

  private wake(session: string): void {
    for (const onChange of this.watched.get(session) ?? []) onChange()
  }

  /** This node has changed a history. */
  changed(session: string): void {
    this.wake(session)
    if (!this.hasOthers) return
    this.pending.add(hashOf(session))
    this.onPending()
  }

  /** A notification has come. */
  received(payload: string): void {
    if (payload === any) {
      for (const session of [...this.watched.keys()]) this.wake(session)
      return
    }
    for (let at = 0; at < payload.length; at += 8) {
      for (const session of [...(this.byHash.get(payload.slice(at, at + 8)) ?? [])]) this.wake(session)
    }
  }

  /** Announces changes and asks for those of others until the scope closes. */
  run(pool: Pick<Pool, "read">): Effect.Effect<void, never, Scope.Scope> {
    const work = Effect.async<void>(resume => {
      const check = (): void => {
        if (this.pending.size > 0) resume(Effect.void)
      }
      this.onPending = check
      check()
    })
    const send = Effect.suspend(() => {
      const payloads = payloadsOf(this.pending)
      this.pending = new Set()
      return Notifications.send(pool, channel, payloads)
    })
    const announcing = Effect.forever(
      // The others ask too: a notification that is lost makes them late by as much.
      Effect.zipRight(work, Effect.zipRight(Effect.sleep(notifyInterval), Effect.ignore(send)))
    )
    const outage = Supervision.outage("asking for changes of sessions")
    const asking = Effect.suspend(() => Effect.sleep(askInterval[this.isListening ? "listening" : "polling"])).pipe(
      Effect.zipRight(
        Effect.matchCauseEffect(this.ask(pool), { onFailure: outage.failed, onSuccess: () => outage.over })
      )
    )
    return Effect.zipRight(
      Supervision.forkScoped("announcing changes of sessions", announcing),
      Supervision.forkScoped(
        "asking for changes of sessions",
        Effect.forever(Effect.zipRight(this.occupancy.occupied, asking))
      )
    )
  }

  /** What was found of each watched session the last time. */
  private known = new Map<string, string>()

  private ask(pool: Pick<Pool, "read">): Effect.Effect<void, StoreUnavailable> {
    return Effect.suspend(() => {
      const sessions = [...this.watched.keys()]
      const found = new Map<string, string>()
      const portions = Arr.chunksOf(sessions, portion)
      const askFor = (some: ReadonlyArray<string>) =>
        pool.read(headsStatement, [texts(some)], rows => {
          for (const [session, epoch, head] of rows as ReadonlyArray<readonly [string, string | null, number | null]>) {
            found.set(session, `${epoch} ${head}`)
          }
        })
      return Effect.map(Effect.forEach(portions, askFor, { discard: true }), () => {
        const before = this.known
        this.known = found
        for (const [session, state] of found) if (before.get(session) !== state) this.wake(session)
      })
    })
  }
}
