import { it } from "@effect/vitest"
import { Effect } from "effect"
import { expect } from "vitest"
import { temporaryDirectory } from "../ServerProcess.ts"
import { blocksOf, shell } from "./Shell.ts"

/** Commands that other tests, or the continuous integration, run: they install, build or download. */
const elsewhere = ["npm install", "npm run load:cities", "npm run build", "npm ci && npm test"]

it.live("README.md: its commands do what it says, in its order", () =>
  Effect.gen(function* () {
    const blocks = blocksOf("README.md")
    const isElsewhere = ({ code }: (typeof blocks)[number]) => elsewhere.some(start => code.startsWith(start))
    expect(blocks.filter(isElsewhere)).toHaveLength(elsewhere.length)
    const { run } = yield* shell(yield* temporaryDirectory)
    for (const block of blocks) if (!isElsewhere(block)) yield* run(block)
  }).pipe(Effect.scoped)
)
