/**
 * How a node learns that another node has changed the history of a session: by notifications with hashes of sessions,
 * and by polling the ends of watched histories. Polling alone is sufficient.
 */
import { Array as Arr, Duration, Effect, type Scope } from "effect"
import * as Supervision from "../../../base/Supervision.ts"
import type { StoreUnavailable } from "../../../Kv/Store.ts"
import type { Pool } from "../Database/Pool.ts"
import { notify, type Query, textArray } from "../Database/Statement.ts"

/** The payload of a notification is hashes of sessions. */
export const channel = "causeway_sessions"

/** The pause between two notifications of a node. Each takes a lock of the whole server at its commit. */
const notifyInterval = Duration.millis(10)

/** The pause between two queries of a poll, and how much longer it is while notifications arrive. */
export const pollInterval = Duration.millis(150)
export const pollRest = Duration.millis(850)

/** The maximum number of hashes in a payload, which has fewer than 8,000 bytes. */
const maxInPayload = 900

/** The maximum number of sessions in one query. */
const portion = 1000

/** The epoch and the end of the history of each session, as one text. */
const heads = (sessions: ReadonlyArray<string>): Query<ReadonlyArray<readonly [session: string, head: string]>> => ({
  text: `SELECT s.session, concat(h.epoch, ' ', h.head) FROM unnest($1::text[]) s(session)
    LEFT JOIN causeway.histories h ON h.session = s.session`,
  values: [textArray(sessions)],
  decode: rows => rows as ReadonlyArray<readonly [string, string]>
})

/** Returns the FNV-1a hash of the UTF-16 code units, as 8 hexadecimal digits. All nodes use it. */
export const hashOf = (session: string): string => {
  let hash = 0x811c9dc5
  for (let index = 0; index < session.length; index++) {
    hash = Math.imul(hash ^ session.charCodeAt(index), 0x01000193)
  }
  return (hash >>> 0).toString(16).padStart(8, "0")
}

export const payloadsOf = (hashes: ReadonlySet<string>): ReadonlyArray<string> =>
  Arr.chunksOf(hashes, maxInPayload).map(some => some.join(""))

type OnChange = () => void

export class SessionNotifications {
  private readonly watched = new Map<string, Set<OnChange>>()
  private readonly byHash = new Map<string, Set<string>>()
  private readonly occupancy = new Supervision.Occupancy()
  private pending = new Set<string>()
  private readonly work = Effect.unsafeMakeLatch(false)
  /** Whether other nodes may exist. */
  hasOthers = true
  /** Whether notifications arrive. */
  isListening = false

  /** Calls back soon after the history of a session may have changed. Returns a function that stops this. */
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
    this.work.unsafeOpen()
  }

  /** A notification has arrived. */
  received(payload: string): void {
    for (let at = 0; at < payload.length; at += 8) {
      for (const session of [...(this.byHash.get(payload.slice(at, at + 8)) ?? [])]) this.wake(session)
    }
  }

  /** Sends notifications and polls until the scope closes. */
  run(pool: Pick<Pool, "read">): Effect.Effect<void, never, Scope.Scope> {
    const send = Effect.suspend(() => {
      this.work.unsafeClose()
      const payloads = payloadsOf(this.pending)
      this.pending = new Set()
      return pool.read(notify(channel, payloads))
    })
    const announcing = Effect.forever(
      // The others poll too, so a lost notification delays them only until their next query.
      Effect.zipRight(this.work.await, Effect.zipRight(Effect.sleep(notifyInterval), Effect.ignore(send)))
    )
    const rest = Effect.suspend(() => (this.isListening ? Effect.sleep(pollRest) : Effect.void))
    return Effect.zipRight(
      Supervision.forkScoped("announcing changes of sessions", announcing),
      Supervision.repeatWhenDueScoped(
        "asking for changes of sessions",
        pollInterval,
        Effect.zipRight(this.occupancy.occupied, Effect.as(this.ask(pool), rest))
      )
    )
  }

  /** The epoch and the end of each watched history at the last query. */
  private known = new Map<string, string>()

  private ask(pool: Pick<Pool, "read">): Effect.Effect<void, StoreUnavailable> {
    return Effect.suspend(() => {
      const portions = Arr.chunksOf([...this.watched.keys()], portion)
      return Effect.map(
        Effect.forEach(portions, some => pool.read(heads(some))),
        read => {
          const found = new Map(read.flat())
          const before = this.known
          this.known = found
          for (const [session, state] of found) if (before.get(session) !== state) this.wake(session)
        }
      )
    })
  }
}
