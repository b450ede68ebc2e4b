/**
 * Lists of a tenant's sessions, page by page. A request reads and holds no more than its page.
 */
import { type Context, Effect } from "effect"
import type { Store, StoreUnavailable } from "../../Kv/Store.ts"
import { cursorChars, listedSessions } from "../Protocol/Limits.ts"
import type { LostPart, Session } from "../Protocol/Session.ts"
import type { SessionEvents, Summary } from "../SessionEvents.ts"
import { InvalidCursor, type ListSessions, type SessionPage } from "../Sessions.ts"
import type { Entity } from "./Entity.ts"
import * as Ids from "./Ids.ts"
import {
  type ListedRecord,
  listedRecord,
  missingParts,
  missingSecrets,
  namespaceOf,
  view,
  withMissing
} from "./SessionRecord.ts"

export interface Parts {
  readonly store: Context.Tag.Service<Store>
  readonly events: Context.Tag.Service<SessionEvents>
  /** The session, if it is in memory. */
  readonly peek: (tenant: string, id: string) => Entity | undefined
  /** The secrets of a session that are in memory, by name. */
  readonly secretsOf: (tenant: string, id: string) => Readonly<Record<string, unknown>>
  readonly keyOf: (tenant: string, id: string) => string
}

/** A page ends early where its sessions come to this many characters, which only long lists of names make them. */
const pageChars = 1024 * 1024

/** Pages of the store that one request reads at most, where it finds entries that are no sessions. */
const mostReads = 4

/** The key of the last entry that a page has come to, as a cursor. */
const cursorOf = (key: string): string => Buffer.from(key).toString("base64url")

const keyOfCursor = (cursor: string): Effect.Effect<string, InvalidCursor> =>
  Effect.suspend(() => {
    const key = Buffer.from(cursor, "base64url").toString()
    return cursor.length <= cursorChars && key !== "" && cursorOf(key) === cursor
      ? Effect.succeed(key)
      : new InvalidCursor()
  })

/** Lets everybody else have their turn: a page is read and written in one go. */
export const nextTurn: Effect.Effect<void> = Effect.async<void>(resume => {
  const handle = setImmediate(() => resume(Effect.void))
  return Effect.sync(() => clearImmediate(handle))
})

const keptOf = ({ hasDeployment, hasEnvironment }: Summary): ReadonlyArray<LostPart> => [
  ...(hasEnvironment ? (["environment"] as const) : []),
  ...(hasDeployment ? (["deployment"] as const) : [])
]

/**
 * The sessions of a tenant, the newest first: an id begins with the time of its creation. What is no session of ours in
 * the tenant's namespace is left out.
 */
export const make = ({ events, keyOf, peek, secretsOf, store }: Parts) => {
  /** What clients see of records; what is in memory is newer than its record. */
  const viewsOf = (tenant: string, records: ReadonlyArray<ListedRecord>) =>
    Effect.map(events.summaries(records.map(({ id }) => keyOf(tenant, id))), summaries =>
      records.map((record, index): Session => {
        const summary = summaries[index] ?? undefined
        const known = peek(tenant, record.id)
        if (known !== undefined) return known.view()
        return {
          ...withMissing(
            view(record),
            missingSecrets(record, secretsOf(tenant, record.id)),
            summary === undefined ? [] : missingParts(record, keptOf(summary))
          ),
          headSeq: summary?.headSeq ?? record.headSeq
        }
      })
    )

  return (
    tenant: string,
    { cursor, limit = listedSessions }: ListSessions
  ): Effect.Effect<SessionPage, InvalidCursor | StoreUnavailable> =>
    Effect.gen(function* () {
      const namespace = namespaceOf(tenant)
      const records: Array<ListedRecord> = []
      let after = cursor === undefined ? "" : yield* keyOfCursor(cursor)
      let more = true
      let chars = 0
      const isFull = () => records.length >= limit || chars >= pageChars
      for (let reads = 0; more && reads < mostReads && !isFull(); reads++) {
        const page = yield* store.list({
          namespace,
          prefix: "",
          after,
          limit: limit - records.length,
          isDescending: true
        })
        more = page.more
        for (const { key, value } of page.entries) {
          if (isFull()) {
            more = true
            break
          }
          after = key
          const record = Ids.isSession(key) ? listedRecord(tenant, key, value) : undefined
          if (record === undefined) continue
          records.push(record)
          chars += value.length
        }
      }
      const sessions = yield* viewsOf(tenant, records)
      return more ? { sessions, cursor: cursorOf(after) } : { sessions }
    })
}
