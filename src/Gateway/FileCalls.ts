import type { Effect } from "effect"
import { MiB } from "../Bytes.ts"
import { type Claim, FairPool } from "./FairPool.ts"
import type { Request } from "./Protocol/Request.ts"
import type { SessionsBusy } from "./Sessions.ts"

/** Requests whose answers may be large. */
export const fileRequests: ReadonlySet<Request["type"]> = new Set([
  "list_files",
  "read_file",
  "file_history",
  "file_at_iteration"
])

/** Maximum bytes of the answer to a file call, which is the limit of the platform's client. */
const fileBytes = { list: 8 * MiB, content: 32 * MiB } as const

/** An answer of a file call that has not been sent. */
export interface UnsentAnswer {
  /** Whether the client does not read. */
  readonly isStalled: () => boolean
  /** Drops the answer. Must not throw. */
  readonly drop: () => void
}

/** Maximum bytes of the answer to a request. */
const largest = (type: Request["type"]): number =>
  type === "read_file" || type === "file_at_iteration" ? fileBytes.content : fileBytes.list

/**
 * The memory of file calls, by tenant. A call counts the maximum size of its answer. An answer counts its size until it is
 * sent. When memory is needed, answers to stalled clients of the largest tenant are dropped.
 */
export class FileCalls {
  private readonly pool: FairPool

  constructor(capacity: number) {
    this.pool = new FairPool({
      name: "memory for files",
      capacity,
      // Calls in progress cannot be reclaimed.
      maxOfOne: Math.max(capacity * 0.75, fileBytes.content)
    })
  }

  /** Runs a call with memory for its answer. */
  use<A, E, R>(
    tenant: string,
    type: Request["type"],
    call: (claim: Claim) => Effect.Effect<A, E, R>
  ): Effect.Effect<A, E | SessionsBusy, R> {
    return this.pool.use(tenant, largest(type), call)
  }

  /** Registers an unsent answer. Returns a function that removes it and does not release the claim. */
  hold(claim: Claim, answer: UnsentAnswer): () => void {
    claim.offer({ isReclaimable: answer.isStalled, onReclaim: answer.drop })
    return () => claim.withdraw()
  }

  /** Call this about once a second: clients become stalled as time passes. */
  tick(): void {
    this.pool.serve()
  }
}
