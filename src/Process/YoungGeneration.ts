/**
 * Keeps V8's young generation small until the process is under load.
 *
 * V8 doubles it whenever many objects survive, up to 2 × 16 MiB, and everything survives while modules are loaded. An
 * idle service would hold 30 MiB that it needs only under load. To keep it small does not slow down the start.
 */
import { setFlagsFromString } from "node:v8"

/** V8 11 of Node 20, for which this was measured. Other versions are not changed. */
const isKnown = process.versions.v8.startsWith("11.")

const growBy = (factor: 1 | 2): void => {
  if (isKnown) setFlagsFromString(`--semi-space-growth-factor=${factor}`)
}

/**
 * Keeps the young generation at its present size; to be called before modules are loaded. Starting a thread ends the hold
 * as {@link release} does, since V8 resets the factor then.
 */
export const hold = (): void => growBy(1)

/** Lets it grow, as V8 does by default. */
export const release = (): void => growBy(2)
