/**
 * The position from which scans for expired entries start. No stored entry expires at the position or before it, so
 * that scans do not visit deleted entries again.
 *
 * The position moves under the lock of the log, and never past the time of the newest record. No later write is
 * recorded with an earlier time. So an entry can be before the position only if it has expired when it is written, and
 * a trigger moves the position back for it.
 */
import type { Statement } from "../Database/Statement.ts"
import * as Positions from "./Positions.ts"

/** An SQL condition for entries that have expired at `now` and are still stored. */
export const isDue = (now: string): string => `expires_at > ${Positions.of("expiry")} AND expires_at <= ${now}`

/** Milliseconds between two attempts to move the position if entries are written again before they expire. */
export const interval = 10_000

/** Moves the position to a time in epoch milliseconds, or less far. It does nothing if that is less than 10 s. */
export const advance: Statement = { name: "advance_expiry", text: "SELECT causeway.advance_expiry($1)" }
