import type { Turns } from "../EventMapping/Turns.ts"
import type { EventBody } from "../Protocol/Event.ts"

/** Ended turns that are remembered: figures and results may come behind the end of their turn. */
const mostEnded = 16

/**
 * The trace of each turn, which is that of the message that began it: events of the turn carry it, whichever
 * connection they come by.
 */
export class TurnTraces {
  private readonly traces = new Map<string, string>()

  /** The trace of the turn that an event belongs to, where that is known. */
  of(body: EventBody): string | undefined {
    return "turnId" in body && body.turnId !== undefined ? this.traces.get(body.turnId) : undefined
  }

  /** Whether there is a turn among those open whose trace is not known. */
  lacks({ open }: Turns): boolean {
    for (const turnId of open.keys()) if (!this.traces.has(turnId)) return true
    return false
  }

  /** Takes up the turns that are new with the trace in which they begin. */
  begin({ open }: Turns, traceId: string): void {
    for (const turnId of open.keys()) if (!this.traces.has(turnId)) this.traces.set(turnId, traceId)
    for (const turnId of this.traces.keys()) {
      if (this.traces.size <= open.size + mostEnded) break
      if (!open.has(turnId)) this.traces.delete(turnId)
    }
  }
}
