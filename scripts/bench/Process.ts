/** The processors that processes run on, and what they use (proc(5)). */
import { execFileSync, type SpawnOptions, spawn } from "node:child_process"
import { readdirSync, readFileSync } from "node:fs"
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

/** The clock ticks per second in which the kernel counts CPU time. */
const ticks = Number(output("getconf", ["CLK_TCK"]) ?? 100)

/** Whether servers and the load generator run on different processors. */
export const isPinned = cpus().length > 1 && output("taskset", ["--version"]) !== undefined

const serverProcessor = "0"
const generatorProcessor = "1"

/** Keeps all threads of this process off the processor of the servers. */
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

/** User and system CPU time of all threads of a process, in seconds. */
export const processorSeconds = (pid: number): Effect.Effect<number, BenchFailed> =>
  read(pid, "stat", text => {
    // The name in parentheses may contain spaces; fields 14 and 15 are the 12th and 13th after it.
    const fields = text.slice(text.lastIndexOf(")") + 2).split(" ")
    return (Number(fields[11]) + Number(fields[12])) / ticks
  })

/** The running child processes of a process. */
const childrenOf = (parent: number): ReadonlyArray<number> =>
  readdirSync("/proc")
    .filter(name => /^\d+$/.test(name))
    .map(Number)
    .filter(pid => {
      try {
        const stat = readFileSync(`/proc/${pid}/stat`, "utf8")
        return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]) === parent
      } catch {
        return false
      }
    })

/** The same, with the running child processes. */
export const treeSeconds = (pid: number): Effect.Effect<number, BenchFailed> =>
  Effect.zipWith(
    processorSeconds(pid),
    Effect.forEach(childrenOf(pid), child => Effect.orElseSucceed(processorSeconds(child), () => 0)),
    (own, others) => others.reduce((sum, seconds) => sum + seconds, own)
  )

/** User and system CPU time of the processes that a process started and that have ended, in seconds. */
export const endedProcessorSeconds = (pid: number): Effect.Effect<number, BenchFailed> =>
  read(pid, "stat", text => {
    const fields = text.slice(text.lastIndexOf(")") + 2).split(" ")
    return (Number(fields[13]) + Number(fields[14])) / ticks
  })

/** Resident memory of a process, in bytes. */
export const residentBytes = (pid: number): Effect.Effect<number, BenchFailed> =>
  read(pid, "status", text => Number(/^VmRSS:\s+(\d+) kB/m.exec(text)?.[1]) * 1024)

/** The peak resident memory of a process, in bytes. */
export const maxResidentBytes = (pid: number): Effect.Effect<number, BenchFailed> =>
  read(pid, "status", text => Number(/^VmHWM:\s+(\d+) kB/m.exec(text)?.[1]) * 1024)
