/**
 * Limits V8's young generation, and keeps new objects in it. {@link hold} keeps its first size until {@link release},
 * after which it grows up to {@link limit}.
 *
 * V8 doubles it whenever many objects survive, on Node 24 up to 2 × 64 MiB, and everything survives while modules are
 * loaded and services are built. An idle service would keep 70 MiB that it does not need. Under load, the larger the
 * young generation, the more buffers outside the heap wait to be collected with it.
 *
 * V8's own limit, `--max-semi-space-size`, has no effect in a process that runs. V8 reads the growth factor at each
 * collection. All threads share the factor, and starting a thread resets it to 2.
 *
 * V8 also learns which lines of code allocate objects that survive, and lets these allocate in the old generation
 * ("pretenuring"). If it decides so from the first seconds of a process, each such object is garbage that only
 * a major collection frees, and until then everything that it refers to survives too. So {@link hold} turns that off.
 */
import { PerformanceObserver } from "node:perf_hooks"
import { getHeapSpaceStatistics, setFlagsFromString } from "node:v8"

/** The size up to which the young generation grows, in bytes. */
export const limit = 64 * 1024 * 1024

let allowed = 0

const adjust = (): void => {
  const space = getHeapSpaceStatistics().find(({ space_name }) => space_name === "new_space")
  setFlagsFromString(`--semi-space-growth-factor=${2 * (space?.space_size ?? 0) <= allowed ? 2 : 1}`)
}

/**
 * Keeps the young generation at its present size until {@link release}, and turns pretenuring off permanently; to be
 * called before modules are loaded.
 */
export const hold = (): void => {
  setFlagsFromString("--no-allocation-site-pretenuring")
  adjust()
  new PerformanceObserver(adjust).observe({ entryTypes: ["gc"] })
}

/** Lets the young generation grow up to {@link limit}. */
export const release = (): void => {
  allowed = limit
  adjust()
}
