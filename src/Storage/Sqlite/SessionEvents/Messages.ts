/** What goes between the histories of sessions and their writer, in one thread or across two. */
import type { Append, History, LaunchConfiguration } from "../../../Gateway/SessionEvents.ts"
import type { Away } from "../Kv/Messages.ts"

/** One change of one session. */
export type EventWrite =
  | { readonly op: "open"; readonly session: string; readonly epoch: string }
  | ({ readonly op: "append" } & Append)
  | { readonly op: "restart"; readonly session: string; readonly epoch: string }
  | { readonly op: "configure"; readonly session: string; readonly configuration: LaunchConfiguration }
  | { readonly op: "remove"; readonly session: string }

/** Times are epoch milliseconds; limits bound what one transaction does. */
export type EventRequest =
  | { readonly kind: "commit"; readonly writes: ReadonlyArray<EventWrite> }
  /** Looks at the oldest events, and removes those from before a time. */
  | { readonly kind: "trim"; readonly before: number; readonly limit: number }
  /** Opens the file. */
  | { readonly kind: "probe" }
  /** Opens what now stands in the file's place. */
  | { readonly kind: "reopen" }

/** What became of one write of a group; only what was opened tells of its history. */
export type EventOutcome =
  | { readonly _tag: "Stored"; readonly history: History | undefined }
  | { readonly _tag: "OutOfStep"; readonly headSeq: number | null }
  | { readonly _tag: "Failed"; readonly reason: string }

export type EventReply =
  | {
      readonly _tag: "Done"
      /** For a commit, one for each write. */
      readonly outcomes: ReadonlyArray<EventOutcome>
      /** For trim, how many events were removed. */
      readonly count: number
    }
  | Away
