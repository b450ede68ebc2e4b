import { execFile } from "node:child_process"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"

const collector = fileURLToPath(new URL("../../src/Process/GarbageCollector.ts", import.meta.url))

/** Has young and old objects collected, in the main thread and in another, and tells how often. */
const program = `
  import { PerformanceObserver } from "node:perf_hooks"
  import { Worker } from "node:worker_threads"
  await import(${JSON.stringify(collector)})
  let collections = { major: 0, minor: 0 }
  const count = ({ detail }) => { collections[detail.kind === 4 ? "major" : "minor"]++ }
  new PerformanceObserver(list => list.getEntries().forEach(count)).observe({ entryTypes: ["gc"] })
  const fill = () => {
    let kept = []
    for (let i = 0; i < 1_500_000; i++) {
      kept.push({ i, text: "text " + i })
      if (kept.length === 200_000) kept = kept.slice(100_000)
    }
  }
  const worker = new Worker("(" + fill + ")()", { eval: true })
  fill()
  await new Promise(resolve => worker.on("exit", code => setImmediate(resolve, code)))
  console.log(JSON.stringify(collections))
`

describe("the collector's flags", () => {
  // V8 aborts the process where it finds a flag changed that it relied upon.
  it.live("may be set in a running process", () =>
    Effect.gen(function* () {
      const { stdout } = yield* Effect.promise(() =>
        promisify(execFile)(process.execPath, ["--import", "tsx", "--input-type=module", "-e", program])
      )
      const { major, minor } = JSON.parse(stdout)
      expect(major).toBeGreaterThan(0)
      expect(minor).toBeGreaterThan(0)
    })
  )
})
