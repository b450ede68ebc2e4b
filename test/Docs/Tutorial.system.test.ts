import { join } from "node:path"
import { it } from "@effect/vitest"
import { Effect, Option } from "effect"
import { expect } from "vitest"
import { Store, sqlite } from "../../src/exports/store.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import { evaluate, programsOf } from "./Page.ts"
import { blocksOf, shell } from "./Shell.ts"

/** Runs the program of the page over the data that its commands have left; answers what it prints. */
const runProgram = (directory: string) =>
  Effect.promise(async () => {
    const [program = ""] = programsOf("docs/start/tutorial.md")
    const printed: Array<unknown> = []
    const scope = {
      Effect,
      Option,
      Store,
      console: { log: (value: unknown) => printed.push(value) },
      sqlite: (name: string) => sqlite(join(directory, name))
    }
    await evaluate(program.replace("Effect.runPromise", "await $&"), scope)
    return printed
  })

it.live("docs/start/tutorial.md: its commands and its program do what it says, in its order", () =>
  Effect.gen(function* () {
    const directory = yield* temporaryDirectory
    const { run } = yield* shell(directory)
    yield* Effect.scoped(Effect.forEach(blocksOf("docs/start/tutorial.md"), run, { discard: true }))
    expect(yield* runProgram(directory)).toEqual([Option.some(['{"kilos":5}', 3])])
  }).pipe(Effect.scoped)
)
