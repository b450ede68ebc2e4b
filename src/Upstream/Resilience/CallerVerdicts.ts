/**
 * Verdicts on an upstream service by calls to its parts, where each part has one caller.
 */
import { verdictOf, verdictOnWhole } from "./UpstreamFailure.ts"

/**
 * Counts one failure of each caller against the service, until a call succeeds: what fails for several callers is not
 * their fault. Once enough callers have failed to open the breaker, all failures count.
 */
export class CallerVerdicts {
  /** Callers whose failure has counted since the last success. */
  private readonly failed = new Set<string>()
  /** The verdict on the service by a call to it. */
  readonly onCall = this.clearing(verdictOf)
  /** The verdict on the service by a call to a part without a caller. */
  readonly onPart = this.clearing(verdictOnWhole)

  /** @param openAfter consecutive failures that open the breaker */
  constructor(private readonly openAfter: number) {}

  /** The verdict on the service by a call to the part of a caller. */
  onPartOf(caller: string): typeof verdictOf {
    return this.clearing(exit => {
      const verdict = verdictOf(exit)
      if (verdict !== "failure" || this.failed.size >= this.openAfter) return verdict
      if (this.failed.has(caller)) return verdictOnWhole(exit)
      this.failed.add(caller)
      return verdict
    })
  }

  private clearing(judge: typeof verdictOf): typeof verdictOf {
    return exit => {
      const verdict = judge(exit)
      if (verdict === "success" && this.failed.size > 0) this.failed.clear()
      return verdict
    }
  }
}
