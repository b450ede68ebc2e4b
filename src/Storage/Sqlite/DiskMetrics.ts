/**
 * Metrics of the files of a database, and of their disk.
 *
 * They are measured in the background. A disk that hangs delays no request, but blocks the thread that measures it.
 * Node has four such threads for everything; therefore all instances of a process measure one thing at a time.
 */
import { stat, statfs } from "node:fs/promises"
import { dirname } from "node:path"
import { Clock, Duration, Effect, Metric, MetricLabel, Schedule, type Scope } from "effect"
import * as MetricTags from "../../base/Observability/MetricTags.ts"
import * as Supervision from "../../base/Supervision.ts"
import { hasCode } from "../FileSystem.ts"

export type DatabaseName = "kv.db" | "sessions.db"

const fileBytes = Metric.gauge("database_file_bytes", {
  description: "Size of a database file, or of its write-ahead log, in bytes."
})

const freeBytes = Metric.gauge("disk_free_bytes", {
  description: "Bytes that the service may still use of the disk that kv.db is on."
})

const sizeBytes = Metric.gauge("disk_size_bytes", { description: "Size of the disk that kv.db is on, in bytes." })

const sizeOf = (file: string) => Metric.taggedWithLabels(fileBytes, [MetricLabel.make("file", file)])

const defaultInterval = Duration.seconds(10)

const one = Effect.unsafeMakeSemaphore(1)

/**
 * Repeats a measurement until the scope closes. A failed measurement leaves the gauges unchanged. It uses the system's
 * clock: files change in real time, and tests skip days.
 */
const repeatScoped = (
  name: string,
  interval: Duration.DurationInput,
  measurement: Effect.Effect<void, unknown>
): Effect.Effect<void, never, Scope.Scope> =>
  Supervision.forkScoped(
    name,
    Effect.repeat(one.withPermits(1)(Effect.ignore(measurement)), Schedule.spaced(interval))
  ).pipe(Effect.withClock(Clock.make()))

const bytesOf = (file: string): Promise<number> =>
  stat(file).then(
    ({ size }) => size,
    error => (hasCode(error, "ENOENT") ? 0 : Promise.reject(error))
  )

/** Measures a database and its write-ahead log until the scope closes. A missing file has 0 bytes. */
export const files = (
  name: DatabaseName,
  file: string,
  interval: Duration.DurationInput = defaultInterval
): Effect.Effect<void, never, Scope.Scope> =>
  Effect.flatMap(MetricTags.current, tags => {
    const [data, log] = [sizeOf(name), sizeOf(`${name}-wal`)]
    MetricTags.register([data, log], tags)
    const measurement = Effect.tryPromise(async () => {
      data.unsafeUpdate(await bytesOf(file), tags)
      log.unsafeUpdate(await bytesOf(`${file}-wal`), tags)
    })
    return repeatScoped(`measuring ${name}`, interval, measurement)
  })

/**
 * Measures the disk of a file until the scope closes. Logs a warning when at most `fewBytes` are free, and again only
 * after twice as many were free. Before the first measurement there are no series: 0 would look like a full disk.
 */
export const disk = (
  file: string,
  fewBytes: number,
  interval: Duration.DurationInput = defaultInterval
): Effect.Effect<void, never, Scope.Scope> =>
  Effect.flatMap(MetricTags.current, tags => {
    const directory = dirname(file)
    let isLow = false
    const warning = Effect.logWarning("The disk of the store is nearly full")
    const report = (free: number): Effect.Effect<void> => {
      const isNews = !isLow && free <= fewBytes
      isLow = free <= (isLow ? 2 : 1) * fewBytes
      return isNews ? Effect.annotateLogs(warning, { directory, freeBytes: free }) : Effect.void
    }
    const measurement = Effect.tryPromise(async () => {
      const { bavail, blocks, bsize } = await statfs(directory)
      const free = bavail * bsize
      freeBytes.unsafeUpdate(free, tags)
      sizeBytes.unsafeUpdate(blocks * bsize, tags)
      return free
    })
    return repeatScoped("measuring the disk", interval, Effect.flatMap(measurement, report))
  })
