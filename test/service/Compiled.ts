/** What `compile.ts` has compiled. */
import { join } from "node:path"
import { inject } from "vitest"

/** The service as users run it, module by module. */
export const main = (): string => join(inject("compiled"), "src", "main.js")

/** A program in one piece: the service (`main`), or one of the tests. */
export const program = (name: "main" | "faults" | "hostile" | "host"): string =>
  join(inject("compiled"), "programs", `${name}.js`)
