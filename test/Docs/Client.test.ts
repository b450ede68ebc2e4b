/** Runs each example of docs/client.md against a service. */
import { readFileSync } from "node:fs"
import { Effect, Redacted, Stream } from "effect"
import { transformSync } from "esbuild"
import { describe, expect, it } from "vitest"
import {
  Conflict,
  ConnectionFailed,
  makeClient,
  makeSessions,
  PreconditionFailed,
  ServiceUnavailable
} from "../../src/Client/Client.ts"
import * as Client from "../../src/Client/Effect/Client.ts"
import { withRealGateway } from "../Client/GatewayHarness.ts"
import { withService } from "../Client/Harness.ts"
import { keys } from "../Harness.ts"

const page = readFileSync(new URL("../../docs/client.md", import.meta.url), "utf8")
const examples = [...page.matchAll(/```ts\n(.*?)```/gs)].map(([, code = ""]) => code)

describe("docs/client.md", () => {
  it("has examples", () => {
    expect(examples).toHaveLength(8)
  })

  const run = async (code: string, baseUrl: string) => {
    const scope = {
      Client,
      Conflict,
      ConnectionFailed,
      Effect,
      PreconditionFailed,
      Redacted,
      ServiceUnavailable,
      Stream,
      baseUrl,
      console: { log: () => {} },
      makeClient,
      makeSessions,
      token: keys.write
    }
    const { code: script } = transformSync(`const run = async () => {${code}}`, { loader: "ts" })
    const example: () => Promise<void> = new Function(...Object.keys(scope), `${script}; return run`)(
      ...Object.values(scope)
    )
    await example()
  }

  it.each(examples.map((code, index) => [index + 1, code] as const))("example %i runs", (_, code) =>
    code.includes("makeSessions")
      ? withRealGateway(({ proxy }) => run(code, `http://127.0.0.1:${proxy.port}`))
      : withService(({ service }) => run(code, `http://127.0.0.1:${service.port}`))
  )
})
