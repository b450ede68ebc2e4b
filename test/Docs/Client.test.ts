/** Runs each example of docs/use/client.md against a service. */
import { Effect, Redacted, Stream } from "effect"
import { describe, expect, it } from "vitest"
import {
  Conflict,
  ConnectionFailed,
  Fold,
  makeClient,
  makeSessions,
  PreconditionFailed,
  ServiceUnavailable
} from "../../src/Client/Client.ts"
import * as Client from "../../src/Client/Effect/Client.ts"
import { withRealGateway } from "../Client/GatewayHarness.ts"
import { withService } from "../Client/Harness.ts"
import { keys } from "../Harness.ts"
import { evaluate, programsOf } from "./Page.ts"

const examples = programsOf("docs/use/client.md")

describe("docs/use/client.md", () => {
  it("has examples", () => {
    expect(examples).toHaveLength(9)
  })

  const run = async (code: string, baseUrl: string) => {
    const scope = {
      Client,
      Conflict,
      ConnectionFailed,
      Effect,
      Fold,
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
    await evaluate(code, scope)
  }

  it.each(examples.map((code, index) => [index + 1, code] as const))("example %i runs", (_, code) =>
    code.includes("makeSessions")
      ? withRealGateway(({ proxy }) => run(code, `http://127.0.0.1:${proxy.port}`))
      : withService(({ service }) => run(code, `http://127.0.0.1:${service.port}`))
  )
})
