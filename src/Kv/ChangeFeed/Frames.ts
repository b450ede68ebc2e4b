/**
 * What the change feed sends over WebSockets.
 */
import { type Close, textFrame } from "../../Http/WebSocket.ts"
import type { EncodedEntry } from "../Entry.ts"
import type { Page } from "./Page.ts"

/** How the feed closes WebSockets, as the service's documentation lists it. */
export const closes = {
  goingAway: { code: 1001, reason: "The service is shutting down" },
  internal: { code: 1011, reason: "Internal error" },
  unreadable: { code: 1011, reason: "A change record cannot be read" },
  /** The client may resume after the last `lastSeq` that it saw. */
  slow: { code: 4008, reason: "Too slow; resume after lastSeq" },
  trimmed: { code: 4010, reason: "The history is no longer kept; list again" },
  replaced: { code: 4010, reason: "The log is another one; list again" },
  /** The entries that are there cannot be sent to the end. */
  aborted: { code: 1013, reason: "The list was aborted; connect again" },
  busy: { code: 1013, reason: "Too many whole lists are being read; connect again later" }
} as const satisfies Record<string, Close>

const frames = new WeakMap<Page, Buffer>()

/** A page as a frame, made once for all who are sent it. */
export const pageFrame = (page: Page): Buffer => {
  const known = frames.get(page)
  if (known !== undefined) return known
  const { changes, epoch, lastSeq } = page
  const frame = textFrame(`{"type":"changes","changes":${changes},"lastSeq":${lastSeq},"epoch":"${epoch}"}`)
  frames.set(page, frame)
  return frame
}

/** Tells an idle follower how far the log was scanned for it. */
export const heartbeatFrame = (lastSeq: number, epoch: string): Buffer =>
  textFrame(`{"type":"heartbeat","lastSeq":${lastSeq},"epoch":"${epoch}"}`)

/** Entries that are there as a follower begins. */
export const initialFrame = (entries: ReadonlyArray<EncodedEntry>): Buffer =>
  textFrame(`{"type":"initial","entries":[${entries.map(({ json }) => json).join(",")}]}`)

/** Tells a follower that it has all entries, as they are at this position of the log. */
export const initialEndFrame = ({ epoch, lastSeq }: { readonly epoch: string; readonly lastSeq: number }): Buffer =>
  textFrame(`{"type":"initial-end","lastSeq":${lastSeq},"epoch":"${epoch}"}`)

/** Tells a follower of another log which one there is, and how far it has come. */
export const resetFrame = (epoch: string, lastSeq: number): Buffer =>
  textFrame(`{"type":"reset","epoch":"${epoch}","lastSeq":${lastSeq}}`)
