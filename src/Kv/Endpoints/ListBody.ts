/** The bodies of lists. */
import { Stream } from "effect"
import type { EncodedEntry } from "../Entry.ts"
import type { ListStream } from "../Store.ts"

/**
 * Longer lists are written into bytes entry by entry. A joined text would be in memory several times on its way to the
 * socket: V8 and node copy it to prepend text, and again to encode it.
 */
const largeText = 16_384

/** More than the bytes of any character. A text that exceeds its ASCII length leaves no slack. */
const slack = 4

const charactersOf = (entries: ReadonlyArray<EncodedEntry>): number => {
  // Commas between the entries.
  let length = entries.length - 1
  for (const { json } of entries) length += json.length
  return length
}

/** The entries as bytes if all of them are ASCII, else `undefined`. */
const asciiBytes = (
  before: string,
  entries: ReadonlyArray<EncodedEntry>,
  after: string,
  length: number
): Buffer | undefined => {
  const bytes = Buffer.allocUnsafeSlow(before.length + length + after.length + slack)
  let at = bytes.write(before)
  for (let index = 0; index < entries.length; index++) {
    if (index > 0) bytes[at++] = 0x2c
    const { json } = entries[index]!
    const written = bytes.write(json, at, "utf8")
    if (written !== json.length) return undefined
    at += written
  }
  at += bytes.write(after, at)
  return bytes.subarray(0, at)
}

const join = (entries: ReadonlyArray<EncodedEntry>): string => entries.map(({ json }) => json).join(",")

const bytesOf = (before: string, entries: ReadonlyArray<EncodedEntry>, after: string, length: number): Buffer =>
  asciiBytes(before, entries, after, length) ?? Buffer.from(before + join(entries) + after)

export const ofPage = (entries: ReadonlyArray<EncodedEntry>): string | Uint8Array => {
  const length = charactersOf(entries)
  return length < largeText ? `{"items":[${join(entries)}]}` : bytesOf('{"items":[', entries, "]}", length)
}

/**
 * The body of a whole list. If a portion fails, it fails with a defect, so that no client takes a part for the whole.
 */
export const ofPortions = (portions: ListStream["portions"]): Stream.Stream<Uint8Array> => {
  const items = portions.pipe(
    Stream.filter(entries => entries.length > 0),
    Stream.zipWithIndex,
    Stream.map(([entries, index]) => bytesOf(index === 0 ? "" : ",", entries, "", charactersOf(entries)))
  )
  return Stream.make<[Uint8Array]>(Buffer.from('{"items":[')).pipe(
    Stream.concat(items),
    Stream.concat(Stream.make(Buffer.from("]}"))),
    Stream.orDie
  )
}
