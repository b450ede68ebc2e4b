/** Entries as lines of JSON. */
import { Either } from "effect"
import type { RawJson } from "../../Json/JsonText.ts"
import * as ExactJson from "../ExactJson.ts"
import * as Utf8 from "../Terminal/Utf8.ts"

/** An entry of a line. */
export interface Line {
  readonly namespace: string
  readonly key: string
  readonly value: RawJson
  /** Epoch milliseconds; absent where the entry does not expire. */
  readonly expiresAt?: number
}

/** What an export writes of an entry beside; an import leaves it to the service. */
const ignored: ReadonlySet<string> = new Set(["version", "updatedBy", "updatedAt"])

const taken: ReadonlySet<string> = new Set(["namespace", "key", "value", "expiresAt"])

const show = (value: unknown): string => JSON.stringify(value)

/**
 * The entry of a line, `undefined` for an empty line, or what is wrong with it. A namespace that is given replaces that
 * of the line.
 */
export const parse = (text: string, namespace: string | undefined): Either.Either<Line | undefined, string> => {
  if (text.trim() === "") return Either.right(undefined)
  return Either.flatMap(ExactJson.object(text), members => {
    const stranger = Object.keys(members).find(name => !taken.has(name) && !ignored.has(name))
    if (stranger !== undefined) return Either.left(`it has a member ${show(stranger)}, which no entry has`)
    const { expiresAt = null, key, value } = members
    const place = namespace ?? members.namespace
    if (typeof place !== "string") return Either.left("it has no namespace; --namespace gives one to all entries")
    if (typeof key !== "string") return Either.left("it has no key")
    if (value === undefined) return Either.left("it has no value")
    if (expiresAt !== null && !Number.isSafeInteger(expiresAt)) return Either.left("expiresAt is not a time")
    return Either.right({
      namespace: place,
      key,
      value: value as RawJson,
      ...(expiresAt !== null && { expiresAt: Number(expiresAt) })
    })
  })
}

/** A line of a file, and where it ends, in bytes from the start. */
export interface TextLine {
  /** Without its line break. */
  readonly text: Either.Either<string, string>
  /** With its line break. */
  readonly bytes: Buffer
  /** From 1. */
  readonly number: number
  readonly end: number
}

/** A longer line is refused: it would be held in memory. */
export const maxLineBytes = 64 * 1024 * 1024

/** Splits bytes into lines. The last one may have no line break. */
export async function* lines(
  chunks: AsyncIterable<Uint8Array>,
  start: { readonly offset: number; readonly line: number }
): AsyncGenerator<TextLine, void> {
  let parts: Array<Buffer> = []
  let held = 0
  let end = start.offset
  let number = start.line
  const take = (last: Buffer): TextLine => {
    const bytes = parts.length === 0 ? last : Buffer.concat([...parts, last])
    end += bytes.length
    parts = []
    held = 0
    return { text: Either.map(Utf8.decode(bytes), text => text.replace(/\r?\n$/, "")), bytes, number: ++number, end }
  }
  for await (const chunk of chunks) {
    const bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength)
    let from = 0
    for (let at = bytes.indexOf(10); at >= 0; at = bytes.indexOf(10, from)) {
      yield take(bytes.subarray(from, at + 1))
      from = at + 1
    }
    if (from < bytes.length) {
      parts.push(bytes.subarray(from))
      held += bytes.length - from
    }
    if (held > maxLineBytes) throw new RangeError(`Line ${number + 1} has more than ${maxLineBytes} bytes`)
  }
  if (held > 0) yield take(Buffer.alloc(0))
}
