/** Metrics of a store's files and of its disk. */
import { mkdirSync, statSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Logger, Metric, type MetricLabel } from "effect"
import * as MetricTags from "../../../src/base/Observability/MetricTags.ts"
import * as DiskMetrics from "../../../src/Storage/Sqlite/DiskMetrics.ts"
import { temporaryDirectory } from "../../TemporaryDirectory.ts"

const isLabel = (name: string, value: string) => (label: MetricLabel.MetricLabel) =>
  label.key === name && label.value === value

/** The value of a gauge of this test's instance; `undefined` if there is no such series. */
const gauge = (instance: string, name: string, file?: string): number | undefined => {
  const found = Metric.unsafeSnapshot().find(
    ({ metricKey }) =>
      metricKey.name === name &&
      metricKey.tags.some(isLabel("test_disk", instance)) &&
      (file === undefined || metricKey.tags.some(isLabel("file", file)))
  )
  const state = found?.metricState
  return state !== undefined && "value" in state ? Number(state.value) : undefined
}

/** Files are asked for in true time. */
const until = (isReached: () => boolean) =>
  Effect.repeat(
    Effect.promise(() => new Promise(resolve => setTimeout(resolve, 2))),
    { until: isReached }
  )

/** Milliseconds between two measurements. */
const often = 2

const free = Metric.gauge("disk_free_bytes", {
  description: "Bytes that the service may still use of the disk that kv.db is on."
})

const instance = (name: string) => Effect.tagMetrics("test_disk", name)

describe("metrics of the disk", () => {
  it.scoped("follow a database and its write-ahead log", () =>
    Effect.gen(function* () {
      const file = join(yield* temporaryDirectory, "other-name.db")
      const sizes = () => ["kv.db", "kv.db-wal"].map(name => gauge("files", "database_file_bytes", name))
      writeFileSync(file, "x".repeat(1000))
      yield* DiskMetrics.files("kv.db", file, often)
      assert.deepStrictEqual(sizes(), [0, 0])
      yield* until(() => sizes()[0] === 1000)
      assert.deepStrictEqual(sizes(), [1000, 0])
      writeFileSync(`${file}-wal`, "x".repeat(500))
      yield* until(() => sizes()[1] === 500)
      assert.deepStrictEqual(sizes(), [1000, 500])
    }).pipe(instance("files"))
  )

  it.scoped("keep their values if the files cannot be measured", () =>
    Effect.gen(function* () {
      const directory = join(yield* temporaryDirectory, "d")
      mkdirSync(directory)
      const file = join(directory, "kv.db")
      writeFileSync(file, "x".repeat(1000))
      yield* DiskMetrics.files("kv.db", join(directory, "kv.db"))
      yield* until(() => gauge("kept", "database_file_bytes", "kv.db") === 1000)
      // No file has such a name.
      yield* DiskMetrics.files("kv.db", join(directory, "x".repeat(300)))
      yield* DiskMetrics.files("sessions.db", file)
      yield* until(() => gauge("kept", "database_file_bytes", "sessions.db") === 1000)
      assert.strictEqual(gauge("kept", "database_file_bytes", "kv.db"), statSync(file).size)
    }).pipe(instance("kept"))
  )

  it.scoped("show the disk after its first measurement, and warn once when little of it is free", () =>
    Effect.gen(function* () {
      const file = join(yield* temporaryDirectory, "kv.db")
      const warnings: Array<unknown> = []
      const logger = Logger.replace(
        Logger.defaultLogger,
        Logger.make(({ message }) => warnings.push(message))
      )
      assert.isUndefined(gauge("disk", "disk_free_bytes"))
      yield* Effect.provide(DiskMetrics.disk(file, Number.MAX_SAFE_INTEGER, often), logger)
      yield* until(() => warnings.length > 0)
      const [freeBytes = 0, size = 0] = ["disk_free_bytes", "disk_size_bytes"].map(name => gauge("disk", name))
      assert.isAbove(freeBytes, 0)
      assert.isAtLeast(size, freeBytes)
      // Each measurement sets the gauge again.
      const unset = MetricTags.current.pipe(Effect.map(tags => free.unsafeUpdate(-1, tags)))
      for (let round = 0; round < 3; round++) {
        yield* unset
        yield* until(() => gauge("disk", "disk_free_bytes") !== -1)
      }
      assert.deepStrictEqual(warnings, [["The disk of the store is nearly full"]])
    }).pipe(instance("disk"))
  )

  it("have labels that no tag of an instance may have", () => {
    assert.isTrue(MetricTags.reserved.has("file"))
    assert.isTrue(MetricTags.reserved.has("table"))
  })
})
