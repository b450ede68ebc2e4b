/** Runs each example of docs/embed/testing.md. */
import { Duration, Effect, Layer, Option, TestClock, TestContext } from "effect"
import { describe, expect, it } from "vitest"
import { WebSocket } from "ws"
import { AgentPlatform, ChangeLog, Housekeeping, Json, Store } from "../../src/exports/index.ts"
import * as Testing from "../../src/exports/testing.ts"
import { key, serve } from "../Http/Platform/Host.ts"
import { evaluate, programsOf, read } from "./Page.ts"

const examples = programsOf("docs/embed/testing.md")

/** What each example prints. */
const printed = [
  // The newest record, which is that of the expiry, is kept.
  [[Option.none(), 3]],
  [],
  [[expect.objectContaining({ content: "done", iteration: 1 })]]
]

describe("docs/embed/testing.md", () => {
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
    await evaluate(code, scope)
    expect(lines).toEqual(printed[index])
  })

  it("names each export of the kit", () => {
    expect(Object.keys(Testing).filter(name => !read("docs/embed/testing.md").includes(`| \`${name}`))).toEqual([])
  })
})
