/** What `compile.ts` has compiled. */
import { join } from "node:path"
import { inject } from "vitest"

/**
 * What processes that tests start have beside their own environment: what one has compiled to the code of the processor
 * is there for the others.
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
