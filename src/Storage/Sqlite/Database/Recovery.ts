/** Keeps a database usable after failures of its reader or writer, and limits the write-ahead log. */
import { type Clock, Effect, Runtime } from "effect"
import * as Monotonic from "../../../base/Time/Monotonic.ts"
import type { Opened } from "./Opening.ts"
import type { Reader, ReaderListener } from "./Reader.ts"
import type { Done, Reply } from "./WriterPort.ts"

/** A lock that cannot be taken for this long is stuck: other programs hold locks only briefly. */
const stuckAfterMillis = 500

/** The minimum time between two attempts to drop a stuck lock. Each attempt ends all snapshots. */
const retryIntervalMillis = 5000

/** Failures that are further apart are attributed to different locks. */
const sameLockMillis = 60_000

/** More different locks in a row, without a write in between, are one stuck lock of a store that is rarely used. */
const maxDifferentLocks = 2

/**
 * Detects locks that are never released.
 *
 * SQLite keeps the locks of a process in its own tables. If the operating system fails to release a lock, it stays in
 * the table, and every later attempt to take it fails with SQLITE_BUSY, even on the connection that has it. The table
 * is dropped when the last connection of the process to the file is closed.
 */
export class StuckLocks {
  private since: number | undefined
  /** The number of different locks since the last write. */
  private count = 0
  private lastAt = Number.NEGATIVE_INFINITY
  private triedAt = Number.NEGATIVE_INFINITY

  constructor(
    /** Monotonic time in milliseconds. */
    private readonly now: () => number
  ) {}

  /** After a lock was not taken, which SQLite tried for `tried` milliseconds. Returns whether to close the file. */
  onLocked(tried = 0): boolean {
    const now = this.now()
    if (this.since === undefined || now - this.lastAt > sameLockMillis) {
      this.since = now
      this.count++
    }
    this.lastAt = now
    const isStuck = this.count > maxDifferentLocks || now - this.since + tried >= stuckAfterMillis
    if (!isStuck || now - this.triedAt < retryIntervalMillis) return false
    this.triedAt = now
    return true
  }

  /** A write has taken all its locks. A read does not show that. */
  onWritten(): void {
    this.since = undefined
    this.count = 0
  }
}

export interface RecoveryOptions<O, Q> {
  readonly opened: Opened
  /** The size of the write-ahead log, in bytes, above which it is truncated. */
  readonly walBytes: number
  readonly clock: Clock.Clock
  readonly runtime: Runtime.Runtime<never>
  readonly makeReader: (listener: ReaderListener) => Reader<Q>
  /** Sends a request to the writer. `respond` is called once, with its reply. */
  readonly post: (
    request: { readonly kind: "probe" | "reopen" | "checkpoint" },
    respond: (reply: Reply<O>) => void
  ) => void
  /** Called with the newest sequence number after each successful reply of the writer. */
  readonly onLastSeq: (lastSeq: number) => void
}

/** Owns the reader of a database, and reacts to its failures and to the replies of the writer. */
export class Recovery<O, Q> {
  readonly reader: Reader<Q>
  /** The epoch of the log that the reader reads; `""` if the database has none. */
  epoch: string
  private readonly stuckLocks: StuckLocks
  /** While the file is being reopened, replies to earlier requests must not open anything. */
  private state: "open" | "reopening" | "closed" = "open"
  private isProbing = false
  private isCheckpointing = false
  /** The size of the write-ahead log above which the next checkpoint is tried. */
  private checkpointAbove: number

  constructor(private readonly options: RecoveryOptions<O, Q>) {
    const { clock, makeReader, opened, walBytes } = options
    this.epoch = opened.epoch
    this.checkpointAbove = walBytes
    this.stuckLocks = new StuckLocks(() => Monotonic.unsafeMillis(clock))
    this.reader = makeReader({
      onSuspended: () => this.probe(),
      onReplaced: reason => {
        if (this.state === "open") this.replace(reason)
      },
      onLocked: (reason, tried) => {
        if (this.state === "open" && this.stuckLocks.onLocked(tried)) this.replace(reason)
      }
    })
    if (this.epoch !== "") this.reader.adopt(opened.databaseId)
  }

  /** Closes the reader. Later replies have no effect. */
  close(): void {
    this.state = "closed"
    this.reader.close("the database is closed")
  }

  /** Called with each reply of the writer, before its caller receives it. */
  readonly onReply = (reply: Reply<O>): void => {
    if (this.state !== "open") return
    const { reader } = this
    if (reply._tag === "Done") this.onDone(reply)
    else if (reply.cause === "FileMissing") reader.suspend(reply.reason)
    else if (reply.cause === "FileReplaced") this.replace(reply.reason)
    else if (reply.cause === "Locked" && this.stuckLocks.onLocked()) this.replace(reply.reason)
    else if (reply.cause === "Locked" && reader.isOpen) reader.snapshots.endAll(reply.reason)
    else if ((reply.cause === "Locked" || reply.cause === "DiskError") && !reader.isOpen) reader.resume()
  }

  private onDone(reply: Done<O>): void {
    // Only a write shows that all locks can be taken.
    if (reply.outcomes.length > 0 || reply.count > 0) this.stuckLocks.onWritten()
    this.limitLog(reply.logBytes)
    if (this.reader.readsOther(reply.databaseId)) return this.replace("the database was replaced")
    this.adopt(reply)
    this.reader.resume()
    this.options.onLastSeq(reply.lastSeq)
  }

  /** Only a file that was reopened has another epoch, and no reader reads the old file then. */
  private adopt(reply: Done<O>): void {
    if (reply.epoch !== "") this.reader.adopt(reply.databaseId)
    if (reply.epoch === this.epoch) return
    this.epoch = reply.epoch
    Runtime.runFork(this.options.runtime)(
      Effect.annotateLogs(Effect.logWarning("the change log has a new epoch: its readers have to list again"), {
        file: this.options.opened.file,
        reason: "the database was replaced"
      })
    )
  }

  /** A probe of the writer shows whether a suspended reader can be resumed. */
  private probe(): void {
    const { opened, post } = this.options
    if (this.isProbing || this.state === "closed" || !opened.lock.isHeld()) return
    this.isProbing = true
    post({ kind: "probe" }, () => {
      this.isProbing = false
    })
  }

  /** Closes all connections and opens the file that has the name now, unless another process may have its lock. */
  private replace(reason: string): void {
    this.reader.close(reason)
    const { opened, post } = this.options
    if (!opened.lock.isHeld()) return
    this.state = "reopening"
    post({ kind: "reopen" }, reply => {
      if (this.state === "reopening") this.state = "open"
      this.onReply(reply)
    })
  }

  /**
   * Truncates the write-ahead log when it is too large. SQLite can only do so while no snapshot is open: all snapshots
   * end, and none starts until the checkpoint has ended.
   */
  private limitLog(logBytes: number): void {
    const { opened, post, walBytes } = this.options
    if (logBytes <= walBytes) this.checkpointAbove = walBytes
    if (logBytes <= this.checkpointAbove || this.isCheckpointing || !opened.lock.isHeld()) return
    this.isCheckpointing = true
    this.reader.snapshots.pause(`the write-ahead log has ${logBytes} bytes, more than ${walBytes}`)
    post({ kind: "checkpoint" }, reply => {
      this.isCheckpointing = false
      this.reader.snapshots.resume()
      // Another program prevents the checkpoint. Ending snapshots at each write would not help.
      const left = reply._tag === "Done" ? reply.logBytes : logBytes
      if (left > walBytes) this.checkpointAbove = 2 * left
    })
  }
}
