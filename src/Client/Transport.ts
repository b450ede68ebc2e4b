import type { ChangePage, TransportName } from "./Model.ts"

/** The part of the log to read. */
export type FeedQuery = {
  /** Only changes with a greater `seq`. */
  readonly after: number
  /** The epoch of the log to which `after` belongs, if it is known. */
  readonly epoch: string | undefined
  /** Only the changes of this tenant; default all. */
  readonly tenant: string | undefined
  /** Only the changes of this namespace; default all. */
  readonly namespace?: string | undefined
  /** Only the changes of keys that start with this. */
  readonly prefix?: string | undefined
  /** The maximum number of changes in a page. */
  readonly limit: number
}

/** A part of the log, and the epoch of the log; `""` if it is unknown. */
export interface FeedPage extends ChangePage {
  readonly epoch: string
}

/** The selection of changes. */
export type Part = Pick<FeedQuery, "tenant" | "namespace" | "prefix">

/** A position of the log, with the epoch if it is known. */
export type Position = Pick<FeedQuery, "after" | "epoch">

/** Whether a page belongs to another log than the position, or to one that ends before it. */
export const isReset = ({ epoch, lastSeq }: FeedPage, known: Position): boolean =>
  lastSeq < known.after || (known.epoch !== undefined && isOther(epoch, known.epoch))

/** Whether two epochs are known and differ. */
export const isOther = (epoch: string | undefined, known: string): boolean =>
  epoch !== undefined && epoch !== "" && known !== "" && epoch !== known

/** A connection that delivers changes as they happen. */
export interface Transport {
  readonly name: TransportName
  /**
   * The changes after `query.after` while the connection lasts. The first page is empty and confirms the connection.
   * Fails if the connection is lost. Ends if the log should be read by pages, such as after a reset.
   */
  readonly pages: (query: FeedQuery, signal: AbortSignal) => AsyncGenerator<FeedPage, void>
}

/** The service sends something every 15 seconds: a connection without data for this long is dead. */
export const silenceMs = 40_000

/** Whether an answer is a page of the log. */
export const isPage = ({ changes, lastSeq }: ChangePage): boolean =>
  Number.isSafeInteger(lastSeq) && Array.isArray(changes) && changes.every(({ seq }) => Number.isSafeInteger(seq))
