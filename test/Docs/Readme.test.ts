import { statSync } from "node:fs"
import { join } from "node:path"
import { it } from "@effect/vitest"
import { Array as Arr, Effect } from "effect"
import { expect } from "vitest"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import { type Block, blocksOf, shell } from "./Shell.ts"

/** The commands for production want a directory without a service in development mode. */
const [inDevelopment, inProduction] = Arr.partition(blocksOf("README.md"), ({ code }) => code.includes("causeway.env"))

const runAll = (directory: string, blocks: ReadonlyArray<Block>) =>
  Effect.scoped(Effect.flatMap(shell(directory), ({ run }) => Effect.forEach(blocks, run, { discard: true })))

it.live("README.md: its commands do what it says, in its order", () =>
  Effect.gen(function* () {
    yield* runAll(yield* temporaryDirectory, inDevelopment)
  }).pipe(Effect.scoped)
)

it.live("README.md: a service in production starts again and again with the key that its owner knows", () =>
  Effect.gen(function* () {
    const directory = yield* temporaryDirectory
    yield* runAll(directory, inProduction)
    expect(statSync(join(directory, "causeway.env")).mode & 0o777).toBe(0o600)
    const [, ...afterwards] = inProduction
    expect(afterwards.length).toBe(2)
    yield* runAll(directory, afterwards)
  }).pipe(Effect.scoped)
)
