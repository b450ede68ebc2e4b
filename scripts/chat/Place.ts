/** Where a follower of a session is in its history, so that nothing is shown twice and no loss goes unnoticed. */

/** A place in a session's history. */
export interface Place {
  readonly sessionId: string
  /** The last event that was shown; 0 where none was. */
  readonly seq: number
  /** The life of the history that `seq` belongs to, as far as it is known. */
  readonly epoch: string | undefined
  /** Where the missed events end, as told at the last subscription. */
  readonly headSeq: number
}

/** Before the first event. */
export const start = (sessionId: string): Place => ({ sessionId, seq: 0, epoch: undefined, headSeq: 0 })

/** What a subscription was answered. */
export interface Subscribed {
  readonly epoch: string
  readonly headSeq: number
  readonly recovered: boolean
}

/** The place after a subscription, and what is to be said of it: events are gone, or all of them are others now. */
export const resume = (
  place: Place,
  { epoch, headSeq, recovered }: Subscribed
): readonly [Place, "gap" | "reset" | undefined] => {
  const isSame = place.epoch === undefined || place.epoch === epoch
  if (!isSame) return [{ ...place, epoch, headSeq, seq: 0 }, "reset"]
  return [{ ...place, epoch, headSeq }, recovered || place.seq === 0 ? undefined : "gap"]
}

/** The place after an event; `undefined` where it has been seen or is of another session. */
export const accept = (
  place: Place,
  { sessionId, seq }: { readonly sessionId: string; readonly seq: number }
): Place | undefined => (sessionId === place.sessionId && seq > place.seq ? { ...place, seq } : undefined)

/** Whether all that was missed is there. */
export const isCaughtUp = ({ seq, headSeq }: Place): boolean => seq >= headSeq
