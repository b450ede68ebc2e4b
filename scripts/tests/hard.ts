/**
 * `npm run test:hard`: `npm test` five times and `npm run test:system` twice, while eight other processes are busy that
 * have more of the processors. It prints each failure with how often it came. RUNS and SYSTEM_RUNS are other numbers of runs.
 */
import { type ChildProcess, spawn } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { setPriority, tmpdir } from "node:os"
import { join } from "node:path"
import { outcomesIn, succeeds } from "./Run.ts"

const runs = { test: Number(process.env.RUNS ?? 5), "test:system": Number(process.env.SYSTEM_RUNS ?? 2) }

/** The busy processes have the usual priority, and the tests a lower one. */
const niceness = Number(process.env.NICENESS ?? 2)

const busy: ReadonlyArray<ChildProcess> = Array.from({ length: 8 }, () =>
  spawn(process.execPath, ["--eval", "for (;;) ;"], { stdio: "ignore" })
)
process.once("exit", () => {
  for (const child of busy) child.kill("SIGKILL")
})
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(1))
setPriority(niceness)

interface Failure {
  readonly runs: Set<number>
  readonly message: string
}

const failures = new Map<string, Failure>()
const note = (name: string, run: number, message: string): void => {
  const known = failures.get(name) ?? { runs: new Set(), message }
  known.runs.add(run)
  failures.set(name, known)
}

const commands = (["test", "test:system"] as const).flatMap(name => Array<typeof name>(runs[name]).fill(name))
for (const [run, command] of commands.entries()) {
  const reports = mkdtempSync(join(tmpdir(), "causeway-reports-"))
  const start = performance.now()
  console.log(`\n==> Run ${run + 1} of ${commands.length}: npm run ${command}`)
  const isGood = await succeeds("npm", ["run", "--silent", command], { TEST_REPORTS: reports })
  const failed = outcomesIn(reports).filter(({ status }) => status === "failed")
  for (const { message, name } of failed) note(name, run, message)
  if (!isGood && failed.length === 0) note(`npm run ${command}`, run, "It failed without a failed test.")
  console.log(`Run ${run + 1}: ${failed.length} failures, ${Math.round((performance.now() - start) / 1000)} s`)
  rmSync(reports, { recursive: true, force: true })
}

console.log(`\n==> ${failures.size} different failures in ${commands.length} runs`)
for (const [name, { message, runs }] of failures) {
  console.log(`${runs.size} of ${commands.length}: ${name}\n${message.slice(0, 4000)}`)
}
process.exit(failures.size === 0 ? 0 : 1)
