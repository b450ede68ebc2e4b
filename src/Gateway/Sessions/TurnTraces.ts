import type { EventBody } from "../Protocol/Event.ts"
import type { Turns } from "./SessionState.ts"

/** Ended turns whose trace ids are kept: results may arrive after the end of their turn. */
const maxEnded = 16

/** The trace id of each turn, which is that of the message that started it. Events of the turn carry it. */
export class TurnTraces {
  private readonly traces = new Map<string, string>()

  /** The trace id of the turn of an event, if it is known. */
  of(body: EventBody): string | undefined {
    return "turnId" in body && body.turnId !== undefined ? this.traces.get(body.turnId) : undefined
  }

  /** Whether an open turn has no trace id. */
  lacks({ open }: Turns): boolean {
    for (const turnId of open.keys()) if (!this.traces.has(turnId)) return true
    return false
  }

  /** Sets the trace id of new turns. */
  begin({ open }: Turns, traceId: string): void {
    for (const turnId of open.keys()) if (!this.traces.has(turnId)) this.traces.set(turnId, traceId)
    for (const turnId of this.traces.keys()) {
      if (this.traces.size <= open.size + maxEnded) break
      if (!open.has(turnId)) this.traces.delete(turnId)
    }
  }
}
