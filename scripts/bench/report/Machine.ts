/** The machine that the benchmark runs on. */
import { closeSync, fdatasyncSync, openSync, readFileSync, rmSync, writeSync } from "node:fs"
import { createRequire } from "node:module"
import { cpus, loadavg, release, totalmem } from "node:os"
import { join } from "node:path"
import Database from "better-sqlite3"
import { median } from "../Findings.ts"
import { isPinned } from "../Process.ts"
import { milliseconds } from "./Numbers.ts"

/** The median time of 200 durable appends of 4 KiB, in milliseconds. */
const flushMillis = (directory: string): number => {
  const file = join(directory, "flush")
  const descriptor = openSync(file, "w")
  const block = Buffer.alloc(4096)
  try {
    return median(
      Array.from({ length: 200 }, () => {
        const before = performance.now()
        writeSync(descriptor, block)
        fdatasyncSync(descriptor)
        return performance.now() - before
      })
    )
  } finally {
    closeSync(descriptor)
    rmSync(file)
  }
}

/** The type of a directory's file system, by its longest mount point. */
const fileSystemOf = (directory: string): string => {
  const mounts = readFileSync("/proc/mounts", "utf8")
    .split("\n")
    .map(line => line.split(" "))
    .filter(([, at = " "]) => at === "/" || directory === at || directory.startsWith(`${at}/`))
    .sort(([, a = ""], [, b = ""]) => b.length - a.length)
  return mounts[0]?.[2] ?? "unknown"
}

const versionOf = (name: string): string => {
  const { version }: { readonly version: string } = createRequire(import.meta.url)(`${name}/package.json`)
  return version
}

const sqliteVersion = (): string => {
  const db = new Database(":memory:")
  try {
    return String(db.prepare("SELECT sqlite_version()").pluck().get())
  } finally {
    db.close()
  }
}

/** Other load on the machine distorts figures, so it is reported with them. */
const otherLoad = (): ReadonlyArray<string> => {
  const [, load = 0] = loadavg()
  return load < 0.5
    ? []
    : [`The machine was not idle: its load average over the five minutes before was ${load.toFixed(1)}.`]
}

/** One line each on the machine, versions and durability, and on other load. To be called before the measurements. */
export const describe = (directory: string): ReadonlyArray<string> => {
  const all = cpus()
  const packages = ["effect", "@effect/platform", "better-sqlite3", "ws", "fastify"]
  return [
    `Machine: ${all.length} × ${all[0]?.model.trim() ?? "unknown"}, ${Math.round(totalmem() / 2 ** 30)} GiB, Linux ${release()}.`,
    isPinned
      ? "Servers have one processor to themselves, all their threads together; the load generator has another."
      : "Servers and the load generator share all processors: the machine has one, or taskset is missing.",
    `Versions: Node ${process.versions.node}, SQLite ${sqliteVersion()}, ${packages.map(name => `${name} ${versionOf(name)}`).join(", ")}.`,
    `Durability: SQLite in WAL mode with \`synchronous = FULL\` on ${fileSystemOf(directory)}, which makes 4 KiB durable in ${milliseconds(flushMillis(directory))} (median of 200).`,
    ...otherLoad()
  ]
}
