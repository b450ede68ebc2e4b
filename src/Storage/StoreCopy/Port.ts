/**
 * What a copy reads from and writes to. Each database has an adapter.
 */
import { type Effect, Schema, type Stream } from "effect"
import type { Row, Table } from "./Tables.ts"

/** The copy was not begun; the message says why. Neither store was changed. */
export class StoreCopyRefused extends Schema.TaggedError<StoreCopyRefused>()("StoreCopyRefused", {
  message: Schema.String
}) {}

/** The copy was begun and not finished. The target is not served until a later copy of the same source is finished. */
export class StoreCopyFailed extends Schema.TaggedError<StoreCopyFailed>()("StoreCopyFailed", {
  message: Schema.String
}) {}

/** A store that nobody serves as long as its scope is open. */
export interface Source {
  /** As messages name it, without a password. */
  readonly name: string
  /** Tells it from other stores: the epoch of its change log. */
  readonly id: string
  readonly count: (table: Table) => Effect.Effect<number, StoreCopyFailed>
  /** The rows of a table in its order, in pages of limited size. */
  readonly pages: (table: Table) => Stream.Stream<ReadonlyArray<Row>, StoreCopyFailed>
}

/** An empty store that nobody serves, and that nobody can serve until `finish`. */
export interface Target {
  readonly name: string
  /** Whether it had an unfinished copy, which was removed. */
  readonly isRestarted: boolean
  readonly write: (table: Table, page: ReadonlyArray<Row>) => Effect.Effect<void, StoreCopyFailed>
  /** What has been written. */
  readonly pages: (table: Table) => Stream.Stream<ReadonlyArray<Row>, StoreCopyFailed>
  /** Gives the change log an epoch of its own, and makes the store one that can be served. Returns the epoch. */
  readonly finish: Effect.Effect<string, StoreCopyFailed>
}

/** Why a target is refused that is not empty. */
export const notEmpty = (name: string): string =>
  `${name} is not empty, and two stores are never mixed. Is it the target that was meant?`

/** Why a target is refused that has an unfinished copy of another store. */
export const otherCopy = (name: string, howToEmpty: string): string =>
  `${name} has an unfinished copy of another store. Finish that one, or ${howToEmpty}.`
