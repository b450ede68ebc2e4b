/** The faults that the script of the service is put through: one call fails, once or from then on. */
import type { Call, Rule } from "./Disk.ts"

/** What a call ends with; one that hangs does so until the disk is sound again. */
export type Outcome = "EIO" | "EACCES" | "ENOSPC" | "ESTALE" | "hang"

const ofPaths: ReadonlyArray<Outcome> = ["EIO", "EACCES", "ESTALE", "hang"]

/** What each call may end with, as its manual page has it, and what network file systems add to that. */
export const outcomes: Readonly<Record<Call, ReadonlyArray<Outcome>>> = {
  open: ofPaths,
  create: [...ofPaths, "ENOSPC"],
  stat: ofPaths,
  access: ofPaths,
  read: ["EIO", "ESTALE", "hang"],
  write: ["EIO", "ENOSPC", "ESTALE", "hang"],
  flush: ["EIO", "ENOSPC", "hang"],
  truncate: ["EIO", "ENOSPC", "hang"],
  lock: ["EIO", "ESTALE", "hang"],
  map: ["EACCES"],
  close: ["EIO", "ENOSPC", "hang"],
  unlink: ofPaths,
  rename: [...ofPaths, "ENOSPC"],
  mkdir: [...ofPaths, "ENOSPC"],
  chmod: ["EIO", "EACCES", "ESTALE"],
  readlink: ofPaths,
  list: ofPaths
}

/** Which calls fail and how. */
export interface Fault {
  readonly kind: Call
  /** How many calls of the kind succeed first. */
  readonly skip: number
  /** How many fail then; `Infinity` for all until the disk is sound again. */
  readonly count: number
  readonly outcome: Outcome
}

export const ruleOf = ({ count, kind, outcome, skip }: Fault): Rule => ({
  call: kind,
  outcome,
  skip,
  times: Number.isFinite(count) ? count : -1
})
