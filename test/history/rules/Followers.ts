/** Rules of streams and WebSockets: each record once, in order, and all of them in the end. */
import type * as H from "../History.ts"
import type { Log } from "../Log.ts"
import type { Violation } from "../Violation.ts"
import { wrongSeq } from "./Pages.ts"

/** A follower, over all its connections. */
interface Follower {
  readonly tenant: string | undefined
  /** The last `seq` that it knows to have been scanned; `undefined` after a reset, until it opens again. */
  position: number | undefined
  /** Whether it reads this epoch's log; `undefined` before it has received anything. */
  isHere: boolean | undefined
}

/** @param isOf whether an epoch is that of the log */
export const check = (
  events: ReadonlyArray<H.Event>,
  log: Log,
  isOf: (epoch: string | undefined) => boolean
): ReadonlyArray<Violation> => {
  const violations: Array<Violation> = []
  const followers = new Map<string, Follower>()
  const report = (follower: string, predicate: string) =>
    violations.push({ rule: "follower", message: `follower ${follower} ${predicate}`, operations: [] })
  for (const event of events) {
    if (event.type === "open") {
      const known = followers.get(event.follower)
      if (
        known !== undefined &&
        known.isHere !== false &&
        known.position !== undefined &&
        known.position !== event.after
      ) {
        report(event.follower, `resumed after seq ${event.after}, and had read up to ${known.position}`)
      }
      followers.set(event.follower, { tenant: event.tenant, position: event.after, isHere: known?.isHere })
    } else if (event.type === "reset") {
      const follower = followers.get(event.follower)
      if (follower !== undefined) follower.position = undefined
    } else if (event.type === "seen") {
      const { changes, lastSeq } = event
      const follower = followers.get(event.follower)
      if (follower === undefined) {
        report(event.follower, `got seq ${lastSeq} without a connection`)
        continue
      }
      follower.isHere = isOf(event.epoch)
      if (!follower.isHere) continue
      const after = follower.position
      if (after === undefined) report(event.follower, `got seq ${lastSeq} after it was reset`)
      else if (lastSeq < after) report(event.follower, `got the position ${lastSeq} after ${after}`)
      else {
        const wrong = wrongSeq(log, after, lastSeq, follower.tenant, changes)
        if (wrong !== undefined) report(event.follower, `got ${wrong}, when it had read up to ${after}`)
      }
      follower.position = lastSeq
    } else if (event.type === "end" && log.isWhole) {
      for (const [name, { position = 0, tenant }] of followers) {
        const missed = wrongSeq(log, position, log.end, tenant, [])
        if (missed !== undefined) report(name, `has read up to seq ${position} in the end, ${missed}`)
      }
    }
  }
  return violations
}
