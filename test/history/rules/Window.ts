/** Where an operation may stand in the log. */
import type { Log } from "../Log.ts"
import type { Rule } from "../Violation.ts"

export interface Window {
  readonly log: Log
  /** The first and the last position that the operation may have. */
  readonly floor: number
  readonly ceiling: number
  readonly clockError: number
}

/** Why no position of the window agrees, as a predicate to the operation. */
export interface Misplaced {
  readonly rule: Rule
  readonly predicate: string
  /** A position out of the window that would agree. */
  readonly position?: number
  /** Whether it is wrong regardless of the log. */
  readonly isForm?: true
}
