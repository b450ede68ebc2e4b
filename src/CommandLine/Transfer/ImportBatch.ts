/** Sends the entries of an import. */
import { Chunk, Effect, Option } from "effect"
import type * as Client from "../../EffectClient/Client.ts"
import type { Line, TextLine } from "./Lines.ts"

/** An entry, and the line that it is from. */
export interface Item extends Line {
  readonly line: number
}

/** What is done with an entry that is there already. */
export type Existing = "replace" | "skip"

/** The limits of a batch. */
export interface Bounds {
  readonly operations: number
  /** Bytes of the lines. A single line may exceed it. */
  readonly bytes: number
}

/** What a batch has done. */
export interface Done {
  readonly written: number
  readonly skipped: number
}

/** Lines that are sent as one batch, and where the last of them ends. */
export interface Portion {
  readonly lines: ReadonlyArray<TextLine>
  readonly bytes: number
}

/** Gathers lines into portions, in order. */
export async function* portions(lines: AsyncIterable<TextLine>, bounds: Bounds): AsyncGenerator<Portion, void> {
  let held: Array<TextLine> = []
  let bytes = 0
  for await (const line of lines) {
    const size = Buffer.byteLength(line.text)
    if (held.length > 0 && (held.length >= bounds.operations || bytes + size > bounds.bytes)) {
      yield { lines: held, bytes }
      held = []
      bytes = 0
    }
    held.push(line)
    bytes += size
  }
  if (held.length > 0) yield { lines: held, bytes }
}

const operationOf = ({ expiresAt, key, namespace, value }: Item, existing: Existing) => ({
  op: "set" as const,
  namespace,
  key,
  value,
  ...(expiresAt !== undefined && { expiresAt }),
  ...(existing === "skip" && { ifVersion: 0 })
})

/** The most entries that are read at once. */
const mostRead = 1000

/** Those of the entries that the store does not have. */
const absent = (client: Client.Service, items: ReadonlyArray<Item>) =>
  Effect.map(
    Effect.forEach(Chunk.chunksOf(Chunk.fromIterable(items), mostRead), chunk => {
      const asked = [...chunk]
      return Effect.map(client.getMany(asked), ({ items: found }) =>
        asked.filter((_, index) => Option.isNone(found[index] ?? Option.none()))
      )
    }),
    parts => parts.flat()
  )

/** The first entry of each key, as a later one of the batch would find it there. */
const firstOfEach = (items: ReadonlyArray<Item>): ReadonlyArray<Item> => {
  const seen = new Set<string>()
  return items.filter(({ key, namespace }) => {
    const address = JSON.stringify([namespace, key])
    return !seen.has(address) && seen.add(address)
  })
}

/**
 * Writes entries as one batch. Where those that are there are skipped, they are looked for once the batch is refused,
 * and left out; somebody else may write the next one meanwhile, so that it may take several turns.
 */
export const send = (
  client: Client.Service,
  items: ReadonlyArray<Item>,
  existing: Existing
): Effect.Effect<Done, Client.ClientError> => {
  const attempt = (wanted: ReadonlyArray<Item>): Effect.Effect<number, Client.ClientError> =>
    wanted.length === 0
      ? Effect.succeed(0)
      : client.batch(wanted.map(item => operationOf(item, existing))).pipe(
          Effect.as(wanted.length),
          Effect.catchTag("PreconditionFailed", () =>
            Effect.flatMap(absent(client, wanted), rest =>
              // An entry that was deleted meanwhile is not there, and the batch may succeed as it is.
              attempt(rest)
            )
          )
        )
  const wanted = existing === "skip" ? firstOfEach(items) : items
  return Effect.map(attempt(wanted), written => ({ written, skipped: items.length - written }))
}

/** The line that an error of the service is about. */
export const lineOf = (message: string, items: ReadonlyArray<Item>): number | undefined => {
  const [, index] = /\boperations\[(\d+)\]/.exec(message) ?? []
  return index === undefined ? undefined : items[Number(index)]?.line
}
