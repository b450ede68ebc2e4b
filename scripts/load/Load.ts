import { Duration, Effect, Option, Stream } from "effect"
import * as BatchClient from "./BatchClient.ts"
import { type Bounds, type Entry, inBatches } from "./Batches.ts"

/** The entries and how to write them. */
export interface Options extends BatchClient.Options {
  /** Each key occurs once, because concurrent batches are not ordered. */
  readonly entries: Iterable<Entry>
  readonly namespace: string
  /** Batches in flight at once. */
  readonly concurrency: number
  readonly bounds?: Partial<Bounds>
  /** Called after each batch with the number of its entries. */
  readonly onProgress?: (entries: number) => Effect.Effect<void>
}

/** The number of entries written and the time taken. */
export interface Summary {
  readonly entries: number
  readonly batches: number
  readonly elapsed: Duration.Duration
}

/** Within the service's limits of 1,000 operations and 16 MiB. */
export const defaultBounds: Bounds = { operations: 1000, bytes: 4 * 1024 * 1024 }

/**
 * Fills a namespace with entries by concurrent batches. It fails with the first batch that is refused, or for which the
 * service stays unavailable; entries already written remain.
 */
export const load = (options: Options): Effect.Effect<Summary, BatchClient.Refused | BatchClient.Away> =>
  Effect.gen(function* () {
    const send = yield* BatchClient.make(options)
    const { namespace, concurrency, onProgress = () => Effect.void } = options
    const batches = inBatches(options.entries, { ...defaultBounds, ...options.bounds, namespace })
    const [elapsed, written] = yield* Stream.fromIteratorSucceed(batches, 1).pipe(
      Stream.mapEffect(
        operations =>
          Effect.flatMap(send(operations), count =>
            count === operations.length
              ? Effect.as(onProgress(count), count)
              : new BatchClient.Refused({
                  status: Option.some(200),
                  reason: `${count} results for ${operations.length} operations`
                })
          ),
        { concurrency, unordered: true }
      ),
      Stream.runFold({ entries: 0, batches: 0 }, (sum, count) => ({
        entries: sum.entries + count,
        batches: sum.batches + 1
      })),
      Effect.timed
    )
    return { ...written, elapsed }
  })

/** The summary in one line. */
export const describe = ({ entries, batches, elapsed }: Summary): string => {
  const seconds = Duration.toSeconds(elapsed)
  const rate = seconds > 0 ? `, ${Math.round(entries / seconds).toLocaleString("en")} entries/s` : ""
  const inBatches = `${entries.toLocaleString("en")} entries in ${batches.toLocaleString("en")} batches`
  return `${inBatches}, ${seconds.toFixed(1)} s${rate}`
}
