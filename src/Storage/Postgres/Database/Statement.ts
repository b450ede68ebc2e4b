/** Statements, their parameters, and their results. */
import { type Effect, Exit } from "effect"
import { constVoid } from "effect/Function"
import type pg from "pg"
import * as Direct from "../../../base/Direct.ts"
import type { StoreUnavailable } from "../../../Kv/Store.ts"
import { isStatementLost, type QueryError, unavailable } from "./DatabaseError.ts"

const bool = 16
const int8 = 20
const int4 = 23

/** A row, column by column. */
export type Row = ReadonlyArray<unknown>

const isTrue = (text: string): boolean => text === "t"

const asText = (text: string): string => text

/** How clients read values: whole numbers as numbers, as none exceeds 2^53, booleans, and all others as text. */
export const types = {
  getTypeParser: (oid: number) => (oid === int8 || oid === int4 ? Number : oid === bool ? isTrue : asText)
} as pg.CustomTypesConfig

/** A value of a parameter. A text must not contain U+0000. */
export type Parameter = string | number | boolean | Buffer | null

/** A statement with its parameters and the decoding of its rows. */
export interface Query<A> {
  readonly text: string
  readonly values: ReadonlyArray<Parameter>
  readonly decode: (rows: ReadonlyArray<Row>) => A
}

/** Runs `other` if the name of a statement was lost. Any other failure becomes `StoreUnavailable`. */
export const orElseWhenLost = <A>(
  attempt: Effect.Effect<A, QueryError>,
  other: () => Effect.Effect<A, StoreUnavailable>
): Effect.Effect<A, StoreUnavailable> =>
  Direct.catchAll(attempt, error => (isStatementLost(error) ? other() : Exit.fail(unavailable(error))))

const names = new Map<string, string>()

/** The name under which each connection prepares a text once: what it uses, and a number. Texts are few. */
export const nameOf = (text: string): string => {
  const name = names.get(text) ?? `${/causeway\.(\w+)/.exec(text)?.[1]} ${names.size}`
  names.set(text, name)
  return name
}

export const first = <A>([row]: ReadonlyArray<Row>): A => row![0] as A

/** Calls a function of the schema. */
export const calling = <A>(
  name: string,
  values: ReadonlyArray<Parameter>,
  decode: (rows: ReadonlyArray<Row>) => A
): Query<A> => ({
  text: `SELECT causeway.${name}(${values.map((_, index) => `$${index + 1}`).join(", ")})`,
  values,
  decode
})

const text = 25

/** Writes the header: one dimension from 1, and elements that may be null. Returns the offset of the first element. */
const header = (buffer: Buffer, length: number, type: number): number => {
  buffer.writeInt32BE(length === 0 ? 0 : 1, 0)
  buffer.writeInt32BE(1, 4)
  buffer.writeInt32BE(type, 8)
  if (length === 0) return 12
  buffer.writeInt32BE(length, 12)
  buffer.writeInt32BE(1, 16)
  return 20
}

const headerSize = (length: number): number => (length === 0 ? 12 : 20)

/** Encodes an `integer[]`. */
export const integerArray = (numbers: ReadonlyArray<number>): Buffer => {
  const buffer = Buffer.allocUnsafe(headerSize(numbers.length) + 8 * numbers.length)
  let at = header(buffer, numbers.length, int4)
  for (const number of numbers) {
    buffer.writeInt32BE(4, at)
    at = buffer.writeInt32BE(number, at + 4)
  }
  return buffer
}

/** Encodes a `bigint[]` of whole numbers and nulls. */
export const bigintArray = (numbers: ReadonlyArray<number | null>): Buffer => {
  const buffer = Buffer.allocUnsafe(headerSize(numbers.length) + 12 * numbers.length)
  let at = header(buffer, numbers.length, int8)
  for (const number of numbers) {
    at = buffer.writeInt32BE(number === null ? -1 : 8, at)
    if (number === null) continue
    // The upper half has the sign.
    const high = Math.floor(number / 2 ** 32)
    at = buffer.writeInt32BE(high, at)
    at = buffer.writeUInt32BE(number - high * 2 ** 32, at)
  }
  return buffer.subarray(0, at)
}

/** Encodes a `text[]` of texts and nulls. */
export const textArray = (all: ReadonlyArray<string | null>): Buffer => {
  let size = headerSize(all.length)
  for (const item of all) size += 4 + (item === null ? 0 : Buffer.byteLength(item))
  const buffer = Buffer.allocUnsafe(size)
  let at = header(buffer, all.length, text)
  for (const item of all) {
    const length = item === null ? -1 : buffer.write(item, at + 4)
    buffer.writeInt32BE(length, at)
    at += 4 + Math.max(length, 0)
  }
  return buffer
}

/**
 * Sends a notification for each payload. It makes other nodes poll at once, which they do anyway later. So its commit is
 * not flushed: it would hold a lock of the whole server until then.
 */
export const notify = (channel: string, payloads: ReadonlyArray<string>): Query<void> => ({
  text: "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, p) FROM unnest($2::text[]) p",
  values: [channel, textArray(payloads)],
  decode: constVoid
})
