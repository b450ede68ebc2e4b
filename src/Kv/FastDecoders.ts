/**
 * Fast decoders of the most common requests to the key-value group: without preconditions and without an expiry. All
 * other requests are decoded by the schemas in `Requests`.
 */
import type { FastDecoder } from "../Http/Contract.ts"
import { RawJson } from "../Json/JsonText.ts"

type Members = Readonly<Record<string, unknown>>

const isPlainObject = (input: unknown): input is Members =>
  typeof input === "object" && input !== null && Object.getPrototypeOf(input) === Object.prototype

/** The names in a path. The router has checked that the path has these parameters. */
export const fastPath = <Name extends string>(
  ...names: ReadonlyArray<Name>
): FastDecoder<Readonly<Record<Name, string>>> => {
  const isComplete = (input: Members): input is Readonly<Record<Name, string>> => {
    for (const name of names) if (typeof input[name] !== "string") return false
    for (const name in input) if (!names.some(known => known === name)) return false
    return true
  }
  return input => (isPlainObject(input) && isComplete(input) ? input : undefined)
}

const none = {}

/** Accepts headers that have none of these names. */
export const headersWithout =
  (...names: ReadonlyArray<string>): FastDecoder<Readonly<Record<string, never>>> =>
  input => {
    if (!isPlainObject(input)) return undefined
    for (const name of names) if (name in input) return undefined
    return none
  }

/** The body of a common PUT. */
interface PlainSet {
  readonly value: unknown
  readonly actor?: string
}

const isPlainSet = (input: Members): input is Members & PlainSet => {
  if (!(input.value instanceof RawJson)) return false
  for (const name in input) {
    if (name !== "value" && (name !== "actor" || typeof input.actor !== "string")) return false
  }
  return true
}

/** Decodes the body of a PUT with a value, and optionally an actor. */
export const fastSetPayload: FastDecoder<PlainSet> = input =>
  isPlainObject(input) && isPlainSet(input) ? input : undefined

/** An operation of a common batch. */
type PlainOperation =
  | { readonly op: "set"; readonly namespace: string; readonly key: string; readonly value: unknown }
  | { readonly op: "delete"; readonly namespace: string; readonly key: string }

const isPlainOperation = (input: unknown): input is PlainOperation => {
  if (!isPlainObject(input) || typeof input.namespace !== "string" || typeof input.key !== "string") return false
  const isSet = input.op === "set"
  if (isSet ? !(input.value instanceof RawJson) : input.op !== "delete") return false
  for (const name in input) {
    if (name !== "op" && name !== "namespace" && name !== "key" && !(isSet && name === "value")) return false
  }
  return true
}

/** The body of a common batch. */
interface PlainBatch {
  readonly operations: ReadonlyArray<PlainOperation>
  readonly actor?: string
}

const isPlainBatch = (input: Members): input is Members & PlainBatch => {
  const { operations } = input
  if (!Array.isArray(operations)) return false
  for (const name in input) {
    if (name !== "operations" && (name !== "actor" || typeof input.actor !== "string")) return false
  }
  for (let index = 0; index < operations.length; index++) if (!isPlainOperation(operations[index])) return false
  return true
}

/** Decodes the body of a batch whose operations have no preconditions and no expiry. */
export const fastBatchPayload: FastDecoder<PlainBatch> = input =>
  isPlainObject(input) && isPlainBatch(input) ? input : undefined
