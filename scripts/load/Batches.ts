/** An entry to write: its key, and any JSON value. */
export interface Entry {
  readonly key: string
  readonly value: unknown
}

/** Where a batch ends; both are also limits of the service. */
export interface Bounds {
  readonly operations: number
  /** Of the request body, in bytes of UTF-8; a single entry may be larger. */
  readonly bytes: number
}

/** The body of a batch request, and how many entries it sets. */
export interface Batch {
  readonly count: number
  readonly body: string
}

/** Cuts entries into batches, in their order and as late as possible, so that few bodies are in memory at once. */
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
