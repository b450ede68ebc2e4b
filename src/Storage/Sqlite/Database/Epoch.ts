/**
 * Which log a database holds. The epoch of the log is stored in the database, so that a copy has it too. A record beside
 * the database tells which file had it and how far its log had come. A database that differs from the record may lack
 * changes that readers of the log have seen, as a backup does that was put in its place: its log gets a new epoch.
 */
import { closeSync, openSync, readFileSync, renameSync, statSync, writeFileSync, writeSync } from "node:fs"
import type { Database } from "better-sqlite3"
import { hasCode } from "../../FileSystem.ts"
import { DatabaseUnavailable, isUnreadable } from "./DatabaseError.ts"
import { lastingIdOf } from "./Files.ts"

/** What a database with a log has beside the table `metadata`. */
export interface LogFormat {
  /** The query for the newest sequence number; it may be null. */
  readonly lastSeq: string
}

interface LogRecord {
  readonly epoch: string
  /** Which file has the log. */
  readonly fileId: string
  /** How far the log had come. Everything that was acknowledged is at or before this, unless the machine lost power. */
  readonly lastSeq: number
}

/** The record beside a database. */
export const recordOf = (file: string): string => `${file.replace(/\.db$/, "")}.epoch`

const digits = 16

/** One sector of the disk holds it, so that none is written by halves. */
const print = ({ epoch, fileId, lastSeq }: LogRecord): string =>
  `epoch ${epoch}\nfile ${fileId}\nlastSeq ${String(lastSeq).padStart(digits, "0")}\n`

const pattern = /^epoch ([\x21-\x7e]{1,64})\nfile (\S+)\nlastSeq (\d{16})\n$/

/** The record beside a database, or `undefined` where there is none, or none that is complete. */
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
 * Replaces the record. It is not flushed: a record that is lost or old makes an epoch at most one too many, since the
 * database has the new epoch before.
 */
const writeRecord = (file: string, record: LogRecord): void => {
  const place = recordOf(file)
  const mode = (statSync(place, { throwIfNoEntry: false })?.mode ?? 0o600) & 0o777
  writeFileSync(`${place}.new`, print(record), { mode })
  renameSync(`${place}.new`, place)
}

/** What a read returns, or `undefined` where a damaged page prevents it: the rest of the database is to be served. */
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

/** What is known of the log in a database. */
export interface Found {
  /** Its epoch; `""` where it has none yet. */
  readonly epoch: string
  /** How the database differs from the record; `undefined` where it does not. */
  readonly difference: string | undefined
}

/** Compares a database with the record beside it. */
export const check = (db: Database, file: string, log: LogFormat): Found => {
  const stored = unlessDamaged(
    () => db.prepare<[], string>("SELECT value FROM metadata WHERE name = 'epoch'").pluck().get() ?? ""
  )
  const record = readRecord(file)
  if (record === undefined) return { epoch: stored ?? "", difference: "there is no record of its epoch" }
  const epoch = stored ?? record.epoch
  if (epoch !== record.epoch) return { epoch, difference: "it has another epoch than before" }
  if (lastingIdOf(file) !== record.fileId) return { epoch, difference: "it is another file than before" }
  const lastSeq = unlessDamaged(() => lastSeqIn(db, log)) ?? record.lastSeq
  if (lastSeq >= record.lastSeq) return { epoch, difference: undefined }
  return { epoch, difference: `its log ends at ${lastSeq}, and had come to ${record.lastSeq}` }
}

/** Gives the log in a database a new epoch, and returns it. */
export const renew = (db: Database, file: string, log: LogFormat): string => {
  const epoch = db.prepare<[], string>("SELECT lower(hex(randomblob(8)))").pluck().get()!
  db.prepare("INSERT OR REPLACE INTO metadata (name, value) VALUES ('epoch', ?)").run(epoch)
  writeRecord(file, { epoch, fileId: lastingIdOf(file), lastSeq: unlessDamaged(() => lastSeqIn(db, log)) ?? 0 })
  return epoch
}

/** The log of a database that is open for writing, and the record of it. */
export class OpenLog {
  readonly epoch: string
  private readonly descriptor: number
  private readonly offset: number
  private recorded: number | undefined

  /**
   * Throws where the database differs from the record, unless the epoch may be renewed: then nobody may be reading
   * from the database.
   */
  constructor(db: Database, file: string, log: LogFormat, mayRenew: boolean) {
    const { difference, epoch } = check(db, file, log)
    if (difference !== undefined && !mayRenew) throw new DatabaseUnavailable(`${file}: ${difference}`, "FileReplaced")
    this.epoch = difference === undefined ? epoch : renew(db, file, log)
    this.offset = print({ epoch: this.epoch, fileId: lastingIdOf(file), lastSeq: 0 }).length - digits - 1
    this.descriptor = openSync(recordOf(file), "r+")
  }

  /**
   * Records how far the log has come, to be called before that is acknowledged. Where the record cannot be written, the
   * next call writes it: until then a restored backup may pass for this log.
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
