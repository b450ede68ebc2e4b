/** Splits a file of the user into lines. */

/** The most bytes of a line: more than the service takes. */
const maxBytes = 64 * 1024 * 1024

const lineFeed = 10

/** The lines of a file, which is read piece by piece. */
export async function* linesOf(file: Blob): AsyncGenerator<string> {
  let rest: Array<Uint8Array<ArrayBuffer>> = []
  let bytes = 0
  let number = 0
  const decoder = new TextDecoder("utf-8", { fatal: true })
  /** A byte order mark at its start is left out, and nothing is replaced. */
  const take = async (last: Uint8Array<ArrayBuffer>): Promise<string> => {
    number++
    const line = rest.length === 0 ? last : new Uint8Array(await new Blob([...rest, last]).arrayBuffer())
    rest = []
    bytes = 0
    try {
      return decoder.decode(line)
    } catch {
      throw new Error(`Line ${number}: it is not UTF-8`)
    }
  }
  const reader = file.stream().getReader()
  for (;;) {
    const { done, value } = await reader.read()
    if (done) break
    let from = 0
    for (let at = value.indexOf(lineFeed); at >= 0; at = value.indexOf(lineFeed, from)) {
      yield await take(value.subarray(from, at))
      from = at + 1
    }
    rest.push(value.subarray(from))
    bytes += value.length - from
    if (bytes > maxBytes) throw new Error(`Line ${number + 1} is longer than any entry can be`)
  }
  yield await take(new Uint8Array(0))
}
