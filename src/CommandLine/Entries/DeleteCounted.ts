/** Deletes the entries with a prefix that the user has confirmed, and none that was written since then. */
import { Effect, Stream } from "effect"
import type { ChangePage, EntryKey } from "../../Client/Model.ts"
import { json } from "../../Client/Requests.ts"
import type { ClientError, Service } from "../../EffectClient/Client.ts"
import { type CommandFailed, failed } from "../CommandFailed.ts"
import type * as Connection from "../Connection.ts"
import * as Failure from "../Failure.ts"
import { ask } from "../Service.ts"

/** What to delete: the entries that existed at a position of the change log. */
export interface Counted {
  readonly namespace: string
  readonly prefix: string
  readonly lastSeq: number
  readonly epoch: string
}

/** The number of deleted entries, and of those that stay because they were written after the count. */
export interface Outcome {
  readonly count: number
  readonly kept: number
}

const readChanges = json<ChangePage>(({ changes, lastSeq }) => Array.isArray(changes) && Number.isSafeInteger(lastSeq))

/** The maximum number of keys in memory. */
const maxWritten = 1_000_000

const again = "Run the command again: it counts the entries again, and asks."

/**
 * The keys that were set after the count, as far as the log was read. Deletes are ignored, including those of this
 * command: a deleted key is not listed, and one that was set again has a later set.
 */
class WrittenKeys {
  readonly keys = new Set<string>()
  private position: number

  constructor(
    private readonly connection: Connection.Connection,
    private readonly counted: Counted,
    private readonly maxKeys: number
  ) {
    this.position = counted.lastSeq
  }

  /** Reads the log at least up to a position. */
  readonly readTo = (end: number): Effect.Effect<void, CommandFailed> =>
    Effect.gen(this, function* () {
      const { epoch, namespace, prefix } = this.counted
      while (this.position < end) {
        const query = { after: this.position, limit: 1000, namespace, prefix, epoch }
        const { changes, lastSeq } = yield* ask(this.connection, { path: "/changes", query }, readChanges)
        for (const { key, op } of changes) if (op === "set") this.keys.add(key)
        if (this.keys.size > this.maxKeys) {
          return yield* failed(
            `More than ${this.maxKeys.toLocaleString("en")} of the keys were written in the meantime`,
            again
          )
        }
        if (lastSeq <= this.position) return yield* failed("The log ends before the position of the list", again)
        this.position = lastSeq
      }
    })
}

/**
 * Deletes the counted entries that were not written since then. Each batch is atomic and requires the version of each
 * entry. `onDeleted` receives the number of entries of each batch. Fails if more than `maxKeys` keys are set in the
 * meantime.
 */
export const deleteCounted = (
  client: Service,
  connection: Connection.Connection,
  counted: Counted,
  options: { readonly actor?: string },
  onDeleted: (count: number) => void,
  maxKeys: number = maxWritten
): Effect.Effect<Outcome, CommandFailed> => {
  const { epoch, namespace, prefix } = counted
  const written = new WrittenKeys(connection, counted, maxKeys)
  const explain = Failure.of(connection)

  const remove = (items: ReadonlyArray<EntryKey>): Effect.Effect<number, ClientError> => {
    if (items.length === 0) return Effect.succeed(0)
    const operations = items.map(({ key, version }) => ({ op: "delete", namespace, key, ifVersion: version }) as const)
    return client.batch(operations, options).pipe(
      Effect.as(items.length),
      Effect.tap(count => Effect.sync(() => onDeleted(count))),
      Effect.catchTags({
        // The entry was written after the list was read.
        PreconditionFailed: error => {
          const late = error.operation === undefined ? undefined : items[error.operation]
          if (late === undefined) return error
          written.keys.add(late.key)
          return remove(items.filter(item => item !== late))
        },
        PayloadTooLarge: error => {
          if (items.length === 1) return error
          const half = Math.ceil(items.length / 2)
          return Effect.zipWith(remove(items.slice(0, half)), remove(items.slice(half)), (a, b) => a + b)
        }
      })
    )
  }

  return client.listKeys(namespace, { prefix }).pipe(
    Stream.mapError(explain),
    Stream.runFoldEffect({ count: 0, kept: 0 }, (sums, page) =>
      Effect.gen(function* () {
        if (page.epoch !== epoch)
          return yield* failed("The store was restored or replaced after the entries were counted", again)
        yield* written.readTo(page.lastSeq)
        const unchanged = page.items.filter(({ key }) => !written.keys.has(key))
        const count = yield* Effect.mapError(remove(unchanged), explain)
        return { count: sums.count + count, kept: sums.kept + page.items.length - count }
      })
    )
  )
}
