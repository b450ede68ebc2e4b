/**
 * What a copy reads from and writes to. Each database has an adapter.
 */
import { type Effect, Schema, type Stream } from "effect"
import type { Row, Table } from "./Tables.ts"

/** The copy was not started. The message has the reason. Neither store was changed. */
export class StoreCopyRefused extends Schema.TaggedError<StoreCopyRefused>()("StoreCopyRefused", {
  message: Schema.String
}) {}

/**
 * The copy was started and not finished. No node serves the target until a later copy of the same source is finished.
 */
export class StoreCopyFailed extends Schema.TaggedError<StoreCopyFailed>()("StoreCopyFailed", {
  message: Schema.String
}) {}

/** A store that no node serves while its scope is open. */
export interface Source {
  /** Its name in messages, without a password. */
  readonly name: string
  /** The epoch of its change log, which identifies the store. */
  readonly id: string
  readonly count: (table: Table) => Effect.Effect<number, StoreCopyFailed>
  /** The rows of a table in its order, in pages of limited size. */
  readonly pages: (table: Table) => Stream.Stream<ReadonlyArray<Row>, StoreCopyFailed>
}

/** An empty store that no node serves, or can serve before `finish`. */
export interface Target {
  readonly name: string
  /** Whether the target had an unfinished copy, which was removed. */
  readonly isRestarted: boolean
  readonly write: (table: Table, page: ReadonlyArray<Row>) => Effect.Effect<void, StoreCopyFailed>
  /** The rows that were written. */
  readonly pages: (table: Table) => Stream.Stream<ReadonlyArray<Row>, StoreCopyFailed>
  /** Gives the change log a new epoch and allows nodes to serve the store. Returns the epoch. */
  readonly finish: Effect.Effect<string, StoreCopyFailed>
}

/** The message for a target that is not empty. */
export const notEmpty = (name: string): string =>
  `${name} is not empty, and two stores are never mixed. Is it the target that was meant?`

/** The message for a target with an unfinished copy of another store. */
export const otherCopy = (name: string, howToEmpty: string): string =>
  `${name} has an unfinished copy of another store. Finish that one, or ${howToEmpty}.`
