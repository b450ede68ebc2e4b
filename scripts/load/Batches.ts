/** An entry to write: its key, and any JSON value. */
export interface Entry {
  readonly key: string
  readonly value: unknown
}

/** The limits of a batch. */
export interface Bounds {
  readonly operations: number
  /** The size of the request body in bytes of UTF-8. A single entry may exceed it. */
  readonly bytes: number
}

/** The body of a batch request, and how many entries it sets. */
export interface Batch {
  readonly count: number
  readonly body: string
}

/** Splits entries into batches, in order and lazily, so that few bodies are in memory. */
export function* inBatches(
  entries: Iterable<Entry>,
  options: Bounds & { readonly namespace: string; readonly actor: string }
): Generator<Batch> {
  const head = `{"actor":${JSON.stringify(options.actor)},"operations":[`
  const tail = "]}"
  const empty = Buffer.byteLength(head + tail)
  const namespace = JSON.stringify(options.namespace)
  let operations: Array<string> = []
  let bytes = empty
  for (const { key, value } of entries) {
    const text = `{"op":"set","namespace":${namespace},"key":${JSON.stringify(key)},"value":${JSON.stringify(value)}}`
    const size = Buffer.byteLength(text) + 1
    if (operations.length > 0 && (operations.length === options.operations || bytes + size > options.bytes)) {
      yield { count: operations.length, body: head + operations.join(",") + tail }
      operations = []
      bytes = empty
    }
    operations.push(text)
    bytes += size
  }
  if (operations.length > 0) yield { count: operations.length, body: head + operations.join(",") + tail }
}
