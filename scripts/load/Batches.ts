import type { SetOperation } from "../../src/Client/Model.ts"

/** One write of a batch. */
export type Operation = SetOperation

/** An entry to write: its key, and any JSON value. */
export interface Entry {
  readonly key: string
  readonly value: unknown
}

/** The limits of a batch. */
export interface Bounds {
  readonly operations: number
  /** Bytes of the operations as JSON in UTF-8. A single entry may exceed it. */
  readonly bytes: number
}

/** Splits entries into batches, in order and lazily, so that few are in memory. */
export function* inBatches(
  entries: Iterable<Entry>,
  { bytes: maxBytes, namespace, operations: most }: Bounds & { readonly namespace: string }
): Generator<ReadonlyArray<Operation>> {
  let operations: Array<Operation> = []
  let bytes = 0
  for (const { key, value } of entries) {
    const operation: Operation = { op: "set", namespace, key, value }
    const size = Buffer.byteLength(JSON.stringify(operation)) + 1
    if (operations.length > 0 && (operations.length === most || bytes + size > maxBytes)) {
      yield operations
      operations = []
      bytes = 0
    }
    operations.push(operation)
    bytes += size
  }
  if (operations.length > 0) yield operations
}
