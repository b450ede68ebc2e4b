import type { Effect } from "effect"
import { type Claim, FairPool } from "../FairPool.ts"
import type { Request } from "../Protocol/Request.ts"
import type { SessionsBusy } from "../Sessions.ts"
import { fileBytes } from "./Limits.ts"

/** An answer that is held for a client until it was sent. */
export interface Unsent {
  /** Whether nothing of it moves, as the client does not read. */
  readonly isStalled: () => boolean
  /** Lets go of it. It must not throw. */
  readonly giveUp: () => void
}

/** Bytes that an answer to a request may have, before it is known how many it has. */
const largest = (type: Request["type"]): number =>
  type === "read_file" || type === "file_at_iteration" ? fileBytes.content : fileBytes.list

/**
 * The memory of file calls, by tenant: of those under way as much as their answers may take, of answers what they take,
 * until they were sent. Who needs room takes it from the tenant that has the most, from clients that do not read.
 */
export class FileCalls {
  private readonly unsent = new Map<string, Map<Unsent, Claim>>()
  private readonly pool: FairPool

  constructor(capacity: number) {
    this.pool = new FairPool({
      name: "memory for files",
      capacity,
      // Calls that are under way cannot be taken back.
      mostOfOne: Math.max(capacity * 0.75, fileBytes.content),
      reclaim: tenant => this.takeBack(tenant)
    })
  }

  /** Runs a call with room for its answer. */
  use<A, E, R>(
    tenant: string,
    type: Request["type"],
    call: (claim: Claim) => Effect.Effect<A, E, R>
  ): Effect.Effect<A, E | SessionsBusy, R> {
    return this.pool.use(tenant, largest(type), call)
  }

  /** Notes an answer that waits; returns what is to be called when it does not any more, which releases nothing. */
  hold(claim: Claim, answer: Unsent): () => void {
    const { holder } = claim
    const answers = this.unsent.get(holder) ?? new Map<Unsent, Claim>()
    this.unsent.set(holder, answers.set(answer, claim))
    return () => {
      answers.delete(answer)
      if (answers.size === 0 && this.unsent.get(holder) === answers) this.unsent.delete(holder)
    }
  }

  /** To be called now and then: a client shows only with time that it does not read. */
  look(): void {
    this.pool.serve()
  }

  private takeBack(tenant: string): boolean {
    for (const [answer, claim] of this.unsent.get(tenant) ?? []) {
      if (!answer.isStalled()) continue
      claim.release()
      answer.giveUp()
      return true
    }
    return false
  }
}
