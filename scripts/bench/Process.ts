/** Processes as the kernel sees them: where they run, what they use (proc(5)). */
import { execFileSync, type SpawnOptions, spawn } from "node:child_process"
import { readFileSync } from "node:fs"
import { cpus } from "node:os"
import { Effect } from "effect"
import { BenchFailed } from "./BenchFailed.ts"

const output = (file: string, args: ReadonlyArray<string>): string | undefined => {
  try {
    return execFileSync(file, args, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim()
  } catch {
    return undefined
  }
}

/** Clock ticks a second, in which the kernel counts processor time. */
const ticks = Number(output("getconf", ["CLK_TCK"]) ?? 100)

/** Whether servers and the load generator can have a processor each. */
export const isPinned = cpus().length > 1 && output("taskset", ["--version"]) !== undefined

const serverProcessor = "0"
const generatorProcessor = "1"

/** Keeps this process, with all its threads, off the processor of the servers. */
export const pinGenerator = Effect.sync(() => {
  if (isPinned) output("taskset", ["-a", "-c", "-p", generatorProcessor, String(process.pid)])
})

/** Starts a process on the processor of the servers. */
export const spawnServer = (file: string, args: ReadonlyArray<string>, options: SpawnOptions) =>
  isPinned ? spawn("taskset", ["-c", serverProcessor, file, ...args], options) : spawn(file, args, options)

const read = <A>(pid: number, file: string, parse: (text: string) => A): Effect.Effect<A, BenchFailed> =>
  Effect.try({
    try: () => parse(readFileSync(`/proc/${pid}/${file}`, "utf8")),
    catch: () => new BenchFailed({ reason: `process ${pid} is gone` })
  })

/** Processor time that a process has used so far, with all its threads, user and system together; in seconds. */
export const processorSeconds = (pid: number): Effect.Effect<number, BenchFailed> =>
  read(pid, "stat", text => {
    // The name in parentheses may hold spaces; fields 14 and 15 are the 12th and 13th after it.
    const fields = text.slice(text.lastIndexOf(")") + 2).split(" ")
    return (Number(fields[11]) + Number(fields[12])) / ticks
  })

/** Resident memory of a process, in bytes. */
export const residentBytes = (pid: number): Effect.Effect<number, BenchFailed> =>
  read(pid, "status", text => Number(/^VmRSS:\s+(\d+) kB/m.exec(text)?.[1]) * 1024)
