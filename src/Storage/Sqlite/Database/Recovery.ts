/**
 * Keeps a database usable after failures of its reader or its writer: closes and opens connections, and limits the
 * write-ahead log.
 */
import { type Clock, Effect, Runtime } from "effect"
import * as Monotonic from "../../../Monotonic.ts"
import type * as Damage from "./Damage.ts"
import type { Done, Reply } from "./Messages.ts"
import type { Opened } from "./Opening.ts"
import type { Reader, ReaderListener } from "./Reader.ts"
import { StuckLocks } from "./StuckLocks.ts"

/** The parts of a database that its recovery uses. */
export interface RecoveryOptions<O, Q> {
  readonly opened: Opened
  /** The size of the write-ahead log, in bytes, above which it is truncated. */
  readonly walBytes: number
  readonly clock: Clock.Clock
  readonly runtime: Runtime.Runtime<never>
  readonly reportDamage: Damage.Report
  readonly makeReader: (listener: ReaderListener) => Reader<Q>
  /** Whether the writer was started. */
  readonly hasWriter: () => boolean
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
  private isClosed = false
  private isReopening = false
  private isProbing = false
  private isCheckpointing = false
  /** The size of the write-ahead log above which the next checkpoint is tried. */
  private checkpointAbove: number

  constructor(private readonly options: RecoveryOptions<O, Q>) {
    const { clock, makeReader, opened, reportDamage, walBytes } = options
    this.epoch = opened.epoch
    this.checkpointAbove = walBytes
    this.stuckLocks = new StuckLocks(() => Monotonic.unsafeMillis(clock))
    this.reader = makeReader({
      onSuspended: () => this.probe(),
      onReplaced: reason => {
        if (this.isReacting) this.replace(reason)
      },
      onLocked: (reason, tried) => {
        if (this.isReacting && this.stuckLocks.onLocked(tried)) this.replace(reason)
      },
      reportDamage
    })
    if (this.epoch !== "") this.reader.adopt(opened.databaseId)
  }

  /** Closes the reader. Later replies have no effect. */
  close(): void {
    this.isClosed = true
    this.reader.close("the database is closed")
  }

  /** Called with each reply of the writer, before its caller receives it. */
  readonly onReply = (reply: Reply<O>): void => {
    if (this.isReacting) this.react(reply)
  }

  /** While the file is being reopened, replies to earlier requests must not open anything. */
  private get isReacting(): boolean {
    return !this.isClosed && !this.isReopening
  }

  private react(reply: Reply<O>): void {
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
    if (this.isProbing || this.isClosed || !this.options.hasWriter() || !this.options.opened.lock.isHeld()) return
    this.isProbing = true
    this.options.post({ kind: "probe" }, () => {
      this.isProbing = false
    })
  }

  /**
   * Closes all connections and opens the file that has the name now. Without the lock the file may belong to another
   * process, and stays closed.
   */
  private replace(reason: string): void {
    this.reader.close(reason)
    if (!this.options.hasWriter()) return this.reader.resume()
    if (this.isReopening || !this.options.opened.lock.isHeld()) return
    this.isReopening = true
    this.options.post({ kind: "reopen" }, reply => {
      this.isReopening = false
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
