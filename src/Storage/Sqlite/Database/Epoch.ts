/**
 * Identifies the log of a database. The epoch of the log is stored in the database, so that a copy has it, too. A
 * record file next to the database has the identity of the database file, and the last `seq` of its log. If the
 * database differs from the record, as after a backup was copied over it, it may lack changes that readers have seen.
 * Then its log gets a new epoch.
 */
import { closeSync, openSync, readFileSync, renameSync, statSync, writeFileSync, writeSync } from "node:fs"
import type { Database } from "better-sqlite3"
import { hasCode } from "../../FileSystem.ts"
import { DatabaseUnavailable, isUnreadable } from "./DatabaseError.ts"
import { lastingIdOf } from "./Files.ts"

/** What a database with a log has, in addition to the table `metadata`. */
export interface LogFormat {
  /** The query for the newest sequence number, which may be null. */
  readonly lastSeq: string
}

interface LogRecord {
  readonly epoch: string
  /** The identity of the database file. */
  readonly fileId: string
  /** The last `seq` of the log. Everything that was acknowledged is at or before it, unless the machine lost power. */
  readonly lastSeq: number
}

/** The record file of a database. */
export const recordOf = (file: string): string => `${file.replace(/\.db$/, "")}.epoch`

const digits = 16

/** The record fits into one sector of the disk, so that it is never written partially. */
const print = ({ epoch, fileId, lastSeq }: LogRecord): string =>
  `epoch ${epoch}\nfile ${fileId}\nlastSeq ${String(lastSeq).padStart(digits, "0")}\n`

const pattern = /^epoch ([\x21-\x7e]{1,64})\nfile (\S+)\nlastSeq (\d{16})\n$/

/** The record of a database; `undefined` if it is absent or incomplete. */
const readRecord = (file: string): LogRecord | undefined => {
  let text: string
  try {
    text = readFileSync(recordOf(file), "latin1")
  } catch (error) {
    if (hasCode(error, "ENOENT")) return undefined
    throw error
  }
  const [, epoch, fileId, lastSeq] = pattern.exec(text) ?? []
  return epoch === undefined || fileId === undefined ? undefined : { epoch, fileId, lastSeq: Number(lastSeq) }
}

/**
 * Replaces the record without flushing it. A lost or old record causes at most one unnecessary epoch, because the
 * database has the new epoch first.
 */
const writeRecord = (file: string, record: LogRecord): void => {
  const place = recordOf(file)
  const mode = (statSync(place, { throwIfNoEntry: false })?.mode ?? 0o600) & 0o777
  writeFileSync(`${place}.new`, print(record), { mode })
  renameSync(`${place}.new`, place)
}

/** The result of a read; `undefined` if a damaged page prevents it: the rest of the database is served. */
const unlessDamaged = <A>(read: () => A): A | undefined => {
  try {
    return read()
  } catch (error) {
    if (isUnreadable(error)) return undefined
    throw error
  }
}

const lastSeqIn = (db: Database, { lastSeq }: LogFormat): number =>
  db.prepare<[], number | null>(lastSeq).pluck().get() ?? 0

/** The log of a database, compared with its record. */
export interface Found {
  /** Its epoch; `""` if it has none yet. */
  readonly epoch: string
  /** How the database differs from the record; `undefined` if it does not. */
  readonly difference: string | undefined
}

/** The epoch that a database with a log has stored; `""` if it has none yet. */
export const epochIn = (db: Database): string =>
  db.prepare<[], string>("SELECT value FROM metadata WHERE name = 'epoch'").pluck().get() ?? ""

/** Compares a database with its record. */
export const check = (db: Database, file: string, log: LogFormat): Found => {
  const stored = unlessDamaged(() => epochIn(db))
  const record = readRecord(file)
  if (record === undefined) return { epoch: stored ?? "", difference: "there is no record of its epoch" }
  const epoch = stored ?? record.epoch
  if (epoch !== record.epoch) return { epoch, difference: "it has another epoch than before" }
  if (lastingIdOf(file) !== record.fileId) return { epoch, difference: "it is another file than before" }
  const lastSeq = unlessDamaged(() => lastSeqIn(db, log)) ?? record.lastSeq
  if (lastSeq >= record.lastSeq) return { epoch, difference: undefined }
  return { epoch, difference: `its log ends at ${lastSeq}, and ended at ${record.lastSeq} before` }
}

/** Gives the log in a database a new epoch, and returns it. */
export const renew = (db: Database, file: string, log: LogFormat): string => {
  const epoch = db.prepare<[], string>("SELECT lower(hex(randomblob(8)))").pluck().get()!
  db.prepare("INSERT OR REPLACE INTO metadata (name, value) VALUES ('epoch', ?)").run(epoch)
  writeRecord(file, { epoch, fileId: lastingIdOf(file), lastSeq: unlessDamaged(() => lastSeqIn(db, log)) ?? 0 })
  return epoch
}

/** The log of a database that is open for writing, and its record. */
export class OpenLog {
  readonly epoch: string
  private readonly descriptor: number
  private readonly offset: number
  private recorded: number | undefined

  /**
   * Throws if the database differs from the record, unless the epoch may be renewed: then no connection may read from
   * the database.
   */
  constructor(db: Database, file: string, log: LogFormat, mayRenew: boolean) {
    const { difference, epoch } = check(db, file, log)
    if (difference !== undefined && !mayRenew) throw new DatabaseUnavailable(`${file}: ${difference}`, "FileReplaced")
    this.epoch = difference === undefined ? epoch : renew(db, file, log)
    this.offset = print({ epoch: this.epoch, fileId: lastingIdOf(file), lastSeq: 0 }).length - digits - 1
    this.descriptor = openSync(recordOf(file), "r+")
  }

  /**
   * Records the last `seq` of the log, before it is acknowledged. If the record cannot be written, the next call writes
   * it. Until then a restored backup may be mistaken for this log.
   */
  reached(lastSeq: number): void {
    if (lastSeq === this.recorded) return
    try {
      writeSync(this.descriptor, String(lastSeq).padStart(digits, "0"), this.offset)
      this.recorded = lastSeq
    } catch {
      this.recorded = undefined
    }
  }

  close(): void {
    closeSync(this.descriptor)
  }
}
