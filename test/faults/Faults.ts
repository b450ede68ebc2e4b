/** The faults that are injected while the script runs: one system call fails, once or from then on. */
import type { Call, Rule } from "./Disk.ts"

/** How a call fails; one that hangs does so until the faults are removed. */
export type Outcome = "EIO" | "EACCES" | "ENOSPC" | "ESTALE" | "hang"

const ofPaths: ReadonlyArray<Outcome> = ["EIO", "EACCES", "ESTALE", "hang"]

/** The errors of each call by its manual page, and those that network file systems add. */
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
  /** How many fail then; `Infinity` for all until the faults are removed. */
  readonly count: number
  readonly outcome: Outcome
}

export const ruleOf = ({ count, kind, outcome, skip }: Fault): Rule => ({
  call: kind,
  outcome,
  skip,
  times: Number.isFinite(count) ? count : -1
})
