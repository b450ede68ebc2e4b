import { Context, Layer } from "effect"
import * as Compiled from "./Compiled.ts"

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
  main: Compiled.program("main")
}))
