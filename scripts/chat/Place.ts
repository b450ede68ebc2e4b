/** The position of a client in the history of a session, so that nothing is shown twice and losses are noticed. */

/** A position in a session's history. */
export interface Place {
  readonly sessionId: string
  /** The last event that was shown, or 0. */
  readonly seq: number
  /** The epoch of `seq`, if known. */
  readonly epoch: string | undefined
  /** The last missed event at the last subscription. */
  readonly headSeq: number
}

/** Before the first event. */
export const start = (sessionId: string): Place => ({ sessionId, seq: 0, epoch: undefined, headSeq: 0 })

/** The answer to a subscription. */
export interface Subscribed {
  readonly epoch: string
  readonly headSeq: number
  readonly recovered: boolean
}

/** The position after a subscription, and a message if events were trimmed or the history was replaced. */
export const resume = (
  place: Place,
  { epoch, headSeq, recovered }: Subscribed
): readonly [Place, "gap" | "reset" | undefined] => {
  const isSame = place.epoch === undefined || place.epoch === epoch
  if (!isSame) return [{ ...place, epoch, headSeq, seq: 0 }, "reset"]
  return [{ ...place, epoch, headSeq }, recovered || place.seq === 0 ? undefined : "gap"]
}

/** The position after an event; `undefined` if it is a repeated one or belongs to another session. */
export const accept = (
  place: Place,
  { sessionId, seq }: { readonly sessionId: string; readonly seq: number }
): Place | undefined => (sessionId === place.sessionId && seq > place.seq ? { ...place, seq } : undefined)

/** Whether all missed events have arrived. */
export const isCaughtUp = ({ seq, headSeq }: Place): boolean => seq >= headSeq
