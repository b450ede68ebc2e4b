import type { ChangePage, TransportName } from "./Model.ts"

/** Which part of the log to read. */
export type FeedQuery = {
  /** Only changes with a greater `seq`. */
  readonly after: number
  /** Only the changes of this tenant; of all without it. */
  readonly tenant: string | undefined
  /** The most changes in a page. */
  readonly limit: number
}

/** A way by which changes come in as they happen. */
export interface Transport {
  readonly name: TransportName
  /**
   * What comes after `query.after`, while the connection lasts. The first page, which is empty, tells that the
   * connection stands. It fails where the connection is lost, and ends where the log is better read by pages.
   */
  readonly pages: (query: FeedQuery, signal: AbortSignal) => AsyncGenerator<ChangePage, void>
}

/** The service sends something every 15 seconds: a connection on which nothing came for this long is dead. */
export const silenceMs = 40_000

/** Whether an answer is a part of the log. */
export const isPage = ({ changes, lastSeq }: ChangePage): boolean =>
  Number.isSafeInteger(lastSeq) && Array.isArray(changes) && changes.every(({ seq }) => Number.isSafeInteger(seq))
