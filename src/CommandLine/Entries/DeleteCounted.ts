/** Deletes the entries of a prefix as they were when the user was asked. */
import { Effect, Stream } from "effect"
import type { ChangePage, EntryKey } from "../../Client/Model.ts"
import { json } from "../../Client/Requests.ts"
import type { ClientError, Service } from "../../EffectClient/Client.ts"
import { type CommandFailed, failed } from "../CommandFailed.ts"
import type * as Connection from "../Connection.ts"
import * as Failure from "../Failure.ts"
import { ask } from "../Service.ts"

/** What to delete: the entries that were there at a position of the log. */
export interface Counted {
  readonly namespace: string
  readonly prefix: string
  readonly lastSeq: number
  readonly epoch: string
}

/** How many entries were deleted, and how many stay because they were written after they were counted. */
export interface Outcome {
  readonly count: number
  readonly kept: number
}

const readChanges = json<ChangePage>(({ changes, lastSeq }) => Array.isArray(changes) && Number.isSafeInteger(lastSeq))

/** More keys are not held in memory. */
const maxWritten = 1_000_000

const again = "Run the command again: it counts anew, and asks."

/**
 * The keys that were set after the entries were counted, as far as the log was read. Deletes, which this command's own
 * are among, are left out: a key that is only deleted is not listed, and one that is set again has a later set.
 */
class WrittenKeys {
  readonly keys = new Set<string>()
  private position: number

  constructor(
    private readonly connection: Connection.Connection,
    private readonly counted: Counted,
    private readonly most: number
  ) {
    this.position = counted.lastSeq
  }

  /** Reads the log up to a position at least. */
  readonly readTo = (end: number): Effect.Effect<void, CommandFailed> =>
    Effect.gen(this, function* () {
      const { epoch, namespace, prefix } = this.counted
      while (this.position < end) {
        const query = { after: this.position, limit: 1000, namespace, prefix, epoch }
        const { changes, lastSeq } = yield* ask(this.connection, { path: "/changes", query }, readChanges)
        for (const { key, op } of changes) if (op === "set") this.keys.add(key)
        if (this.keys.size > this.most) {
          return yield* failed(
            `More than ${this.most.toLocaleString("en")} of the keys are written at the moment`,
            again
          )
        }
        if (lastSeq <= this.position) return yield* failed("The log ends before the position of the list", again)
        this.position = lastSeq
      }
    })
}

/**
 * Deletes the entries that were there when they were counted and were not written since, in batches, each at its
 * version. `onDeleted` is told of each batch. It fails if more than `most` keys are set meanwhile.
 */
export const deleteCounted = (
  client: Service,
  connection: Connection.Connection,
  counted: Counted,
  options: { readonly actor?: string },
  onDeleted: (count: number) => void,
  most: number = maxWritten
): Effect.Effect<Outcome, CommandFailed> => {
  const { epoch, namespace, prefix } = counted
  const written = new WrittenKeys(connection, counted, most)
  const explain = Failure.of(connection)

  const remove = (items: ReadonlyArray<EntryKey>): Effect.Effect<number, ClientError> => {
    if (items.length === 0) return Effect.succeed(0)
    const operations = items.map(({ key, version }) => ({ op: "delete", namespace, key, ifVersion: version }) as const)
    return client.batch(operations, options).pipe(
      Effect.as(items.length),
      Effect.tap(count => Effect.sync(() => onDeleted(count))),
      Effect.catchTags({
        // It was written after the list was read.
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
          return yield* failed("The log is another one than when the entries were counted", again)
        yield* written.readTo(page.lastSeq)
        const unchanged = page.items.filter(({ key }) => !written.keys.has(key))
        const count = yield* Effect.mapError(remove(unchanged), explain)
        return { count: sums.count + count, kept: sums.kept + page.items.length - count }
      })
    )
  )
}
