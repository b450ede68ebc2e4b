/** Runs each example of docs/client.md against a service. */
import { readFileSync } from "node:fs"
import { Effect, Redacted, Stream } from "effect"
import { transformSync } from "esbuild"
import { describe, expect, it } from "vitest"
import { makeClient, PreconditionFailed } from "../../src/Client/Client.ts"
import * as Client from "../../src/EffectClient/Client.ts"
import { withService } from "../Client/Harness.ts"
import { keys } from "../Harness.ts"

const page = readFileSync(new URL("../../docs/client.md", import.meta.url), "utf8")
const examples = [...page.matchAll(/```ts\n(.*?)```/gs)].map(([, code = ""]) => code)

describe("docs/client.md", () => {
  it("has examples", () => {
    expect(examples).toHaveLength(5)
  })

  it.each(examples.map((code, index) => [index + 1, code] as const))("example %i runs", (_, code) =>
    withService(async ({ service }) => {
      const scope = {
        Client,
        Effect,
        PreconditionFailed,
        Redacted,
        Stream,
        baseUrl: `http://127.0.0.1:${service.port}`,
        console: { log: () => {} },
        makeClient,
        token: keys.write
      }
      const { code: script } = transformSync(`const run = async () => {${code}}`, { loader: "ts" })
      const run: () => Promise<void> = new Function(...Object.keys(scope), `${script}; return run`)(
        ...Object.values(scope)
      )
      await run()
    })
  )
})
