import { it } from "@effect/vitest"
import { Effect } from "effect"
import { temporaryDirectory } from "../ServerProcess.ts"
import { blocksOf, shell } from "./Shell.ts"

it.live("README.md: its commands do what it says, in its order", () =>
  Effect.gen(function* () {
    const { run } = yield* shell(yield* temporaryDirectory)
    yield* Effect.forEach(blocksOf("README.md"), run, { discard: true })
  }).pipe(Effect.scoped)
)
