import { join } from "node:path"
import { Context, Layer } from "effect"
import { inject } from "vitest"

/** The service as users run it, compiled to JavaScript; see `compile.ts`. */
export class Program extends Context.Tag("causeway/test/Program")<
  Program,
  {
    /** The file to run with `node`. */
    readonly main: string
  }
>() {}

/** The program that was compiled before the tests. */
export const layer: Layer.Layer<Program> = Layer.sync(Program, () => ({
  main: join(inject("compiled"), "src", "main.js")
}))
