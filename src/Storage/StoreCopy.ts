/**
 * Copies a store from SQLite into PostgreSQL, or back: entries with versions and times, tombstones, the change log, and
 * the histories, receipts and launch configurations of sessions.
 *
 * Readers of the change log have to list again: it gets an epoch of its own. Its numbers go on, but the source could be
 * served again, and then two logs would give the same numbers to different changes. For the same reason the histories of
 * sessions get other epochs.
 */
import { createHash } from "node:crypto"
import { Effect, Option, Stream } from "effect"
import { randomHex } from "../RandomHex.ts"
import { type Source, StoreCopyFailed, StoreCopyRefused, type Target } from "./StoreCopy/Port.ts"
import * as Postgres from "./StoreCopy/Postgres.ts"
import * as Sqlite from "./StoreCopy/Sqlite.ts"
import { Digest, type Row, sizeOf, type Table, tables } from "./StoreCopy/Tables.ts"
import type { StoreLocation } from "./StoreUrl.ts"

export { StoreCopyFailed, StoreCopyRefused } from "./StoreCopy/Port.ts"

/** How far a copy has come. */
export interface Progress {
  /** The source is read and the target written, or the target is read again. */
  readonly phase: "copy" | "verify"
  readonly table: string
  /** Rows of all tables that are done in this phase. */
  readonly rows: number
  /** Rows of all tables. */
  readonly totalRows: number
  /** Characters of texts and 8 for each number, of all rows that are done in this phase. */
  readonly bytes: number
}

/** A table of both stores. */
export interface CopiedTable {
  readonly table: string
  readonly rows: number
  /** A digest of all rows, in hexadecimal digits. It does not depend on their order. */
  readonly digest: string
}

/** A finished copy. */
export interface Copied {
  readonly from: string
  readonly to: string
  /** The epoch of the change log in the target. */
  readonly epoch: string
  /** Whether an unfinished copy was removed first. */
  readonly isRestarted: boolean
  readonly tables: ReadonlyArray<CopiedTable>
}

export interface Options {
  readonly from: Location
  readonly to: Location
  /** Called after each page. */
  readonly report?: (progress: Progress) => Effect.Effect<void>
}

/** Where a store is. */
export type Location = Pick<StoreLocation, "directory" | "postgres">

const noReport = () => Effect.void

const historyEpoch = tables.find(({ name }) => name === "histories")!.columns.findIndex(([name]) => name === "epoch")

/** A row as the target has it. */
const renewed = ({ name }: Table, id: string) =>
  name === "histories"
    ? (row: Row): Row => {
        const epoch = createHash("sha256").update(`${id}${row[historyEpoch]}`).digest("hex").slice(0, 32)
        return row.with(historyEpoch, epoch)
      }
    : (row: Row): Row => row

/** Counts the rows of a phase, and tells of them. */
const meter = (phase: Progress["phase"], totalRows: number, report: NonNullable<Options["report"]>) => {
  let rows = 0
  let bytes = 0
  return ({ name }: Table, page: ReadonlyArray<Row>): Effect.Effect<void> =>
    Effect.suspend(() => {
      rows += page.length
      for (const row of page) bytes += sizeOf(row)
      return report({ phase, table: name, rows, totalRows, bytes })
    })
}

/** Pages that are read ahead of the one that is written. */
const pagesAhead = 1

const copyAll = (source: Source, target: Target, report: NonNullable<Options["report"]>) =>
  Effect.gen(function* () {
    const counts = yield* Effect.forEach(tables, source.count)
    const totalRows = counts.reduce((sum, count) => sum + count, 0)
    const id = yield* randomHex(2)
    const copied = meter("copy", totalRows, report)
    const expected = yield* Effect.forEach(tables, (table, index) =>
      Effect.gen(function* () {
        const digest = new Digest()
        const renew = renewed(table, id)
        yield* source.pages(table).pipe(
          Stream.map(page => page.map(renew)),
          Stream.buffer({ capacity: pagesAhead }),
          Stream.runForEach(page => {
            for (const row of page) digest.add(row)
            return Effect.zipRight(target.write(table, page), copied(table, page))
          })
        )
        if (digest.rows !== counts[index]) {
          return yield* new StoreCopyFailed({
            message: `The source should have ${counts[index]} rows in ${table.name}, and has ${digest.rows}.`
          })
        }
        return digest
      })
    )
    const verified = meter("verify", totalRows, report)
    return yield* Effect.forEach(tables, (table, index) =>
      Effect.gen(function* () {
        const digest = new Digest()
        yield* Stream.runForEach(target.pages(table), page => {
          for (const row of page) digest.add(row)
          return verified(table, page)
        })
        const wanted = expected[index]!
        if (digest.rows !== wanted.rows || String(digest) !== String(wanted)) {
          return yield* new StoreCopyFailed({
            message:
              `The target differs from the source in ${table.name}: ` +
              `${wanted.rows} rows with the digest ${wanted} were read, and ${digest.rows} with ${digest} are stored.`
          })
        }
        return { table: table.name, rows: digest.rows, digest: String(digest) }
      })
    )
  })

/** The address of the database itself, behind any pooler. */
const addressOf = ({ postgres }: Location) =>
  Option.map(postgres, ({ directUrl, url }) => Option.getOrElse(directUrl, () => url))

const openSource = (from: Location) =>
  Option.match(addressOf(from), {
    onNone: () => Sqlite.openSource(from.directory),
    onSome: Postgres.openSource
  })

const openTarget = (to: Location, sourceId: string) =>
  Option.match(addressOf(to), {
    onNone: () => Sqlite.openTarget(to.directory, sourceId),
    onSome: url => Postgres.openTarget(url, sourceId)
  })

const sameKind = (kind: string, instead: string) =>
  new StoreCopyRefused({ message: `Both stores are in ${kind}. ${instead} copies such a one.` })

const refuseSameKind = (from: Location, to: Location) => {
  if (Option.isSome(from.postgres) !== Option.isSome(to.postgres)) return Effect.void
  return Option.isSome(from.postgres) ? sameKind("PostgreSQL", "pg_dump") : sameKind("SQLite", "A backup of its files")
}

/**
 * Copies a store into an empty one of the other kind, and verifies what is stored there. Neither is served meanwhile.
 *
 * If it fails or is interrupted, or the process ends, the target is not served until a later copy of the same source,
 * which begins anew, is finished. The source is left as it is, but for its schema, which is brought up to date.
 */
export const copy = ({
  from,
  report = noReport,
  to
}: Options): Effect.Effect<Copied, StoreCopyRefused | StoreCopyFailed> =>
  Effect.gen(function* () {
    yield* refuseSameKind(from, to)
    const source = yield* openSource(from)
    const target = yield* openTarget(to, source.id)
    const copied = yield* copyAll(source, target, report)
    const epoch = yield* target.finish
    return { from: source.name, to: target.name, epoch, isRestarted: target.isRestarted, tables: copied }
  }).pipe(Effect.scoped)
