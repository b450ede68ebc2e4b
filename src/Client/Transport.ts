import type { ChangePage, TransportName } from "./Model.ts"

/** Which part of the log to read. */
export type FeedQuery = {
  /** Only changes with a greater `seq`. */
  readonly after: number
  /** The epoch of the log that `after` is a position of, if it is known. */
  readonly epoch: string | undefined
  /** Only the changes of this tenant; of all without it. */
  readonly tenant: string | undefined
  /** Only the changes of this namespace; of all without it. */
  readonly namespace?: string | undefined
  /** Only the changes of keys that start with this. */
  readonly prefix?: string | undefined
  /** The most changes in a page. */
  readonly limit: number
}

/** A part of the log, and which log it is; `""` where that is not told. */
export interface FeedPage extends ChangePage {
  readonly epoch: string
}

/** Which changes are wanted. */
export type Part = Pick<FeedQuery, "tenant" | "namespace" | "prefix">

/** A position of the log, with the epoch if that is known. */
export type Position = Pick<FeedQuery, "after" | "epoch">

/** Whether a page is of another log than the position, or of one that ends before it. */
export const isReset = ({ epoch, lastSeq }: FeedPage, known: Position): boolean =>
  lastSeq < known.after || (known.epoch !== undefined && isOther(epoch, known.epoch))

/** Whether two epochs differ, as far as they are told. */
export const isOther = (epoch: string | undefined, known: string): boolean =>
  epoch !== undefined && epoch !== "" && known !== "" && epoch !== known

/** A way by which changes come in as they happen. */
export interface Transport {
  readonly name: TransportName
  /**
   * What comes after `query.after`, while the connection lasts. The first page, which is empty, tells that the
   * connection stands. It fails where the connection is lost, and ends where the log is better read by pages.
   */
  readonly pages: (query: FeedQuery, signal: AbortSignal) => AsyncGenerator<FeedPage, void>
}

/** The service sends something every 15 seconds: a connection on which nothing came for this long is dead. */
export const silenceMs = 40_000

/** Whether an answer is a part of the log. */
export const isPage = ({ changes, lastSeq }: ChangePage): boolean =>
  Number.isSafeInteger(lastSeq) && Array.isArray(changes) && changes.every(({ seq }) => Number.isSafeInteger(seq))
