/**
 * Copies a store from SQLite into PostgreSQL, or back: entries with versions and times, tombstones, the change log, and
 * the histories, receipts and launch configurations of sessions.
 *
 * The change log gets a new epoch, so that its readers list again. Its numbers continue. But if the source were served
 * again, two logs would give the same numbers to different changes. For the same reason the histories of sessions get
 * new epochs.
 */
import { createHash } from "node:crypto"
import { Effect, Option, Stream } from "effect"
import { randomHex } from "../base/RandomHex.ts"
import { yieldToEventLoop } from "../base/Time/EventLoop.ts"
import * as Postgres from "./StoreCopy/Postgres.ts"
import * as Sqlite from "./StoreCopy/Sqlite.ts"
import {
  Digest,
  failed,
  type Row,
  refused,
  type Source,
  type StoreCopyFailed,
  type StoreCopyRefused,
  sizeOf,
  type Table,
  type Target,
  tables
} from "./StoreCopy/Tables.ts"
import type { StoreLocation } from "./StoreUrl.ts"

export { StoreCopyFailed, StoreCopyRefused } from "./StoreCopy/Tables.ts"

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

/** The source, the empty target, and the report of progress. */
export interface Options {
  readonly from: Location
  readonly to: Location
  /** Called after each page. */
  readonly report?: (progress: Progress) => Effect.Effect<void>
}

export type Location = Pick<StoreLocation, "directory" | "postgres">

const noReport = () => Effect.void

const historyEpoch = tables.find(({ name }) => name === "histories")!.columns.findIndex(([name]) => name === "epoch")

/** Returns a function that turns a row of the source into that of the target. */
const renewed = ({ name }: Table, id: string) =>
  name === "histories"
    ? (row: Row): Row => {
        const epoch = createHash("sha256").update(`${id}${row[historyEpoch]}`).digest("hex").slice(0, 32)
        return row.with(historyEpoch, epoch)
      }
    : (row: Row): Row => row

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

/** The number of pages that are read while another is written. */
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
          return yield* failed(`The source should have ${counts[index]} rows in ${table.name}, and has ${digest.rows}.`)
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
          // The files of SQLite are read without a pause, and the source must learn that this process runs.
          return Effect.zipRight(verified(table, page), yieldToEventLoop)
        })
        const read = expected[index]!
        if (digest.rows !== read.rows || String(digest) !== String(read)) {
          return yield* failed(
            `The target differs from the source in ${table.name}: ` +
              `${read.rows} rows with the digest ${read} were read, and ${digest.rows} with ${digest} are stored.`
          )
        }
        return { table: table.name, rows: digest.rows, digest: String(digest) }
      })
    )
  })

/** The address of the database itself, not of a pooler. */
const addressOf = ({ postgres }: Location) =>
  Option.map(postgres, ({ directUrl, url }) => Option.getOrElse(directUrl, () => url))

const openSource = (from: Location) =>
  Option.match(addressOf(from), {
    onNone: () => Sqlite.openSource(from.directory),
    onSome: url => Postgres.openSource(url)
  })

const openTarget = (to: Location, sourceId: string) =>
  Option.match(addressOf(to), {
    onNone: () => Sqlite.openTarget(to.directory, sourceId),
    onSome: url => Postgres.openTarget(url, sourceId)
  })

const sameKind = (kind: string, instead: string) =>
  refused(`Both stores are in ${kind}. Copy such a store by ${instead}.`)

const refuseSameKind = (from: Location, to: Location) => {
  if (Option.isSome(from.postgres) !== Option.isSome(to.postgres)) return Effect.void
  return Option.isSome(from.postgres) ? sameKind("PostgreSQL", "pg_dump") : sameKind("SQLite", "a backup of its files")
}

/**
 * Copies a store into an empty one of the other kind, and verifies the copy. No node serves either store during the
 * copy.
 *
 * If the copy fails or is interrupted, or the process ends, no node serves the target until a later copy of the same
 * source is finished; that copy starts from the beginning. The source stays unchanged, except that its schema is
 * brought up to date.
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
