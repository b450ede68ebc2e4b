/**
 * Verdicts on an upstream service, or a part of it, that several callers share.
 */
import { verdictOf, verdictOnWhole } from "./UpstreamFailure.ts"

/**
 * Counts a failure only if none of its callers has one that has counted, until a call succeeds: what fails for several
 * callers is not their fault. Once enough failures have counted to open the breaker, all failures count.
 */
export class CallerVerdicts {
  /** The callers of each failure that has counted since the last success. */
  private readonly failed: Array<ReadonlyArray<string>> = []
  /** The verdict on the service by a call to it. */
  readonly onCall = this.clearing(verdictOf)
  /** The verdict on the service by a call to a part without a caller. */
  readonly onPart = this.clearing(verdictOnWhole)

  /** @param openAfter consecutive failures that open the breaker */
  constructor(private readonly openAfter: number) {}

  /** The verdict by a call of callers of different kinds, such as a tenant and an agent type, in a constant order. */
  onCallOf(callers: ReadonlyArray<string>, judge: typeof verdictOf = verdictOf): typeof verdictOf {
    return this.clearing(exit => {
      const verdict = judge(exit)
      if (verdict !== "failure" || this.failed.length >= this.openAfter) return verdict
      if (this.failed.some(others => others.some((other, kind) => other === callers[kind]))) return verdictOnWhole(exit)
      this.failed.push(callers)
      return verdict
    })
  }

  private clearing(judge: typeof verdictOf): typeof verdictOf {
    return exit => {
      const verdict = judge(exit)
      if (verdict === "success") this.failed.length = 0
      return verdict
    }
  }
}
