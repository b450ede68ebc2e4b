/**
 * The size of V8's young generation while the process has little to do.
 *
 * V8 doubles it whenever much survives, up to 2 × 16 MiB, and loading modules is all survival: a service that nobody
 * has asked anything yet would hold 30 MiB that it only needs under load. Held small it costs the start no time.
 */
import { setFlagsFromString } from "node:v8"

/** V8 11 of Node 20, for which this was measured; others are left alone. */
const isKnown = process.versions.v8.startsWith("11.")

const growBy = (factor: 1 | 2): void => {
  if (isKnown) setFlagsFromString(`--semi-space-growth-factor=${factor}`)
}

/**
 * Keeps the young generation at the size that it has; to be called before much is loaded. A thread that is started
 * ends it as {@link release} does, since V8 then puts the factor right.
 */
export const hold = (): void => growBy(1)

/** Lets it grow as it needs to, which is how V8 is without this. */
export const release = (): void => growBy(2)
