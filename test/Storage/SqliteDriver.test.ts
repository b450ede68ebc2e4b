/** SQLite on a Node that its native module would crash. */
import { execFile } from "node:child_process"
import { promisify } from "node:util"
import { Effect } from "effect"
import { expect, it } from "vitest"
import { module } from "../service/Compiled.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"

/** Makes the process an old Node. The real one would crash, as the signal of `abort` ends this one. */
const asNode20 = `
  Object.defineProperty(process, "versions", { value: { ...process.versions, node: "20.20.2" } })
  process.dlopen = () => process.abort()
`

it("can be imported on a Node that is too old, and refuses to open a store on it, with the reason", () =>
  Effect.gen(function* () {
    const directory = yield* temporaryDirectory
    const program = `${asNode20}
      const { sqlite } = await import(${JSON.stringify(module("exports/store"))})
      const { Effect, Layer } = await import("effect")
      console.log("imported")
      const opened = Effect.scoped(Layer.build(sqlite(${JSON.stringify(directory)})))
      console.log((await Effect.runPromise(Effect.flip(opened))).message)`
    const { stdout } = yield* Effect.promise(() =>
      promisify(execFile)(process.execPath, ["--input-type=module", "-e", program])
    )
    expect(stdout).toContain("imported\n")
    expect(stdout).toContain("It needs Node 22 or later, and this is Node 20.20.2.")
  }).pipe(Effect.scoped, Effect.runPromise))
