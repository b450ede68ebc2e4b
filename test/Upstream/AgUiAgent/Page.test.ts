/** The code of docs/use/ag-ui-agents.md, with the official packages. */
import { createServer, type Server } from "node:http"
import type { AddressInfo } from "node:net"
import { text } from "node:stream/consumers"
import { EventType } from "@ag-ui/core"
import { EventEncoder } from "@ag-ui/encoder"
import { assert, expect } from "@effect/vitest"
import { Effect, Option } from "effect"
import { evaluate, programsOf } from "../../Docs/Page.ts"
import { clientOf, textsOf } from "../../Gateway/AgUi/Fixture.ts"
import { makeStarted } from "../../Gateway/Socket/Fixture.ts"
import { test } from "../../Tests.ts"

test.scopedLive("docs/use/ag-ui-agents.md: an agent behind the gateway", function* () {
  // On a free port.
  const listening = programsOf("docs/use/ag-ui-agents.md").map(code => code.replace(".listen(8000)", ".listen(0)"))
  assert.lengthOf(listening, 1)
  const scope = { createServer, text, EventType, EventEncoder }
  const [server] = (yield* Effect.promise(() => evaluate(listening.join("\n"), scope, ["agent"]))) as [Server]
  yield* Effect.addFinalizer(() => Effect.sync(() => server.close().closeAllConnections()))
  if (!server.listening) yield* Effect.async<void>(resume => void server.once("listening", () => resume(Effect.void)))
  const { port } = server.address() as AddressInfo
  const health = yield* Effect.promise(() => fetch(`http://127.0.0.1:${port}/agent/health`))
  assert.strictEqual(health.status, 200)
  const gateway = yield* makeStarted({ agents: { url: Option.some(`http://127.0.0.1:${port}/agent`) } })
  const client = clientOf(`${gateway.agUi}/any`)
  const { failure } = yield* client.say("hello")
  assert.isUndefined(failure)
  expect(textsOf(client.agent.messages)).toEqual(["user: hello", "assistant: You said: hello"])
})
