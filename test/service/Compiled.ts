/** The output of `compile.ts`. */
import { join } from "node:path"
import { inject } from "vitest"

/**
 * Additional environment of test processes: machine code that one process has compiled is reused by the
 * others.
 */
export const environment = (): Readonly<Record<string, string>> => ({
  NODE_COMPILE_CACHE: join(inject("compiled"), "compile-cache")
})

/** The service as users run it, module by module. */
export const main = (): string => module("main")

/** A module of the sources. */
export const module = (name: string): string => join(inject("compiled"), "src", `${name}.js`)

/** A program in one piece: the service (`main`), or one of the tests. */
export const program = (name: "main" | "faults" | "hostile" | "host"): string =>
  join(inject("compiled"), "programs", `${name}.js`)
