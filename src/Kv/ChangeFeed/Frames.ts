/**
 * Frames and close codes of the change feed over WebSockets.
 */
import { type Close, textFrame } from "../../Http/WebSocket.ts"
import type { EncodedEntry } from "../Entry.ts"

/** How the feed closes WebSockets, as docs/http-api.md lists it. */
export const closes = {
  goingAway: { code: 1001, reason: "The service is shutting down" },
  internal: { code: 1011, reason: "Internal error" },
  unreadable: { code: 1011, reason: "A change record cannot be read" },
  /** The client may resume after the last `lastSeq` that it received. */
  slow: { code: 4008, reason: "Too slow; resume after lastSeq" },
  trimmed: { code: 4010, reason: "The history is no longer kept; list again" },
  replaced: { code: 4010, reason: "The log was replaced; list again" },
  /** Not all present entries could be sent. */
  aborted: { code: 1013, reason: "The list was aborted; connect again" },
  busy: { code: 1013, reason: "Too many whole lists are being read; connect again later" }
} as const satisfies Record<string, Close>

/** Shows an idle follower how far the log was scanned for it. */
export const heartbeatFrame = (lastSeq: number, epoch: string): Buffer =>
  textFrame(`{"type":"heartbeat","lastSeq":${lastSeq},"epoch":"${epoch}"}`)

/** Present entries, for a new follower. */
export const initialFrame = (entries: ReadonlyArray<EncodedEntry>): Buffer =>
  textFrame(`{"type":"initial","entries":[${entries.map(({ json }) => json).join(",")}]}`)

/** The follower has all entries, as of this position of the log. */
export const initialEndFrame = ({ epoch, lastSeq }: { readonly epoch: string; readonly lastSeq: number }): Buffer =>
  textFrame(`{"type":"initial-end","lastSeq":${lastSeq},"epoch":"${epoch}"}`)

/** The log was replaced by one with this epoch, which ends at `lastSeq`. */
export const resetFrame = (epoch: string, lastSeq: number): Buffer =>
  textFrame(`{"type":"reset","epoch":"${epoch}","lastSeq":${lastSeq}}`)
