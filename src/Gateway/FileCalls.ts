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

/** Most bytes in the answer to a file call: the platform's client takes no more. */
const fileBytes = { list: 8 * MiB, content: 32 * MiB } as const

/** An answer of a file call that has not been sent. */
export interface UnsentAnswer {
  /** Whether the client does not read. */
  readonly isStalled: () => boolean
  /** Drops the answer. Must not throw. */
  readonly drop: () => void
}

/** The most bytes that an answer to a request may have. */
const largest = (type: Request["type"]): number =>
  type === "read_file" || type === "file_at_iteration" ? fileBytes.content : fileBytes.list

/**
 * The memory of file calls, by tenant. A call counts as much as its answer may take. An answer counts its size until it
 * is sent. When memory is needed, answers to stalled clients of the largest tenant are dropped.
 */
export class FileCalls {
  private readonly pool: FairPool

  constructor(capacity: number) {
    this.pool = new FairPool({
      name: "memory for files",
      capacity,
      // Calls that are under way cannot be taken back.
      maxOfOne: Math.max(capacity * 0.75, fileBytes.content)
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

  /** Registers an unsent answer. Returns how to remove it, which does not release the claim. */
  hold(claim: Claim, answer: UnsentAnswer): () => void {
    claim.offer({ isReclaimable: answer.isStalled, onReclaim: answer.drop })
    return () => claim.withdraw()
  }

  /** To be called about once a second, as clients become stalled with time. */
  tick(): void {
    this.pool.serve()
  }
}
