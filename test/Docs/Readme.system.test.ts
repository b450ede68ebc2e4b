import { statSync } from "node:fs"
import { join } from "node:path"
import { it } from "@effect/vitest"
import { Effect } from "effect"
import { expect } from "vitest"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import { fencesIn, read } from "./Page.ts"
import { type Block, blocksIn, shell } from "./Shell.ts"

/** The commands of each page, apart where it says to stop with Ctrl-C what runs. */
const parts: ReadonlyArray<ReadonlyArray<Block>> = ["README.md", "docs/operate/deployment.md"].flatMap(page =>
  read(page)
    .split(/^.*Ctrl-C.*$/m)
    .map(text => blocksIn(fencesIn(page, text)))
)

it.live("README.md, then docs/operate/deployment.md: their commands do what they say, in one directory", () =>
  Effect.gen(function* () {
    const directory = yield* temporaryDirectory
    const { run } = yield* shell(directory)
    const runAll = (blocks: ReadonlyArray<Block>) => Effect.scoped(Effect.forEach(blocks, run, { discard: true }))
    yield* Effect.forEach(parts, runAll, { discard: true })
    expect(statSync(join(directory, "causeway.env")).mode & 0o777).toBe(0o600)
    // A service in production starts again and again with the key that its owner knows.
    const inProduction = parts.flat().filter(({ code }) => code.includes("causeway.env"))
    const [, ...afterwards] = inProduction
    expect(afterwards.length).toBe(2)
    yield* runAll(afterwards)
  }).pipe(Effect.scoped)
)
