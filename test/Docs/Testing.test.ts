/** Runs each example of docs/testing.md. */
import { readFileSync } from "node:fs"
import { Duration, Effect, Layer, Option, TestClock, TestContext } from "effect"
import { transformSync } from "esbuild"
import { describe, expect, it } from "vitest"
import { WebSocket } from "ws"
import { AgentPlatform, ChangeLog, Housekeeping, Json, Store } from "../../src/exports/index.ts"
import * as Testing from "../../src/exports/testing.ts"
import { key, serve } from "../Http/Platform/Host.ts"

const page = readFileSync(new URL("../../docs/testing.md", import.meta.url), "utf8")
const examples = [...page.matchAll(/```ts\n(.*?)```/gs)].map(([, code = ""]) => code)

/** What each example prints. */
const printed = [
  // The newest record, which is that of the expiry, is kept.
  [[Option.none(), 3]],
  [],
  [[expect.objectContaining({ content: "done", iteration: 1 })]]
]

describe("docs/testing.md", () => {
  it.each(examples.map((code, index) => [index, code] as const))("example %i runs", async (index, code) => {
    const lines: Array<ReadonlyArray<unknown>> = []
    const scope = {
      ...Testing,
      ...{
        AgentPlatform,
        ChangeLog,
        Duration,
        Effect,
        Housekeeping,
        Json,
        Layer,
        Option,
        Store,
        TestClock,
        TestContext
      },
      WebSocket,
      console: { log: (...values: ReadonlyArray<unknown>) => lines.push(values) },
      headers: { authorization: `Bearer ${key}` },
      listening: Effect.map(serve("edge"), port => ({ port }))
    }
    const { code: script } = transformSync(`const run = async () => {${code}}`, { loader: "ts" })
    const run: () => Promise<void> = new Function(...Object.keys(scope), `${script}; return run`)(
      ...Object.values(scope)
    )
    await run()
    expect(lines).toEqual(printed[index])
  })

  it("names each export of the kit", () => {
    expect(Object.keys(Testing).filter(name => !page.includes(`| \`${name}`))).toEqual([])
  })
})
