/** The code of docs/use/ag-ui.md. */
import { HttpAgent } from "@ag-ui/client"
import { assert } from "@effect/vitest"
import { Effect, Option, Redacted } from "effect"
import { evaluate, programsOf } from "../../Docs/Page.ts"
import { live } from "../Socket/Fixture.ts"
import { secret, token } from "../survival/Token.ts"
import { textsOf } from "./Fixture.ts"

const authentication = { secret: Option.some(Redacted.make(secret)) }

live(
  "docs/use/ag-ui.md: a thread that is joined again, an approval, and a run that is stopped",
  { authentication },
  function* ({ port }) {
    const scope = { HttpAgent, service: `http://127.0.0.1:${port}`, token: yield* token("acme") }
    const results = ["agent", "say", "rejoin", "approve", "stop"]
    yield* Effect.promise(async () => {
      const [agent, say, rejoin, approve, stop] = (await evaluate(
        programsOf("docs/use/ag-ui.md").join("\n"),
        scope,
        results
      )) as [
        HttpAgent,
        (content: string, runId: string) => Promise<unknown>,
        (threadId: string, runId: string) => Promise<HttpAgent>,
        (runId: string) => Promise<unknown>,
        (threadId: string, runId: string) => Promise<Response>
      ]
      await say("/approve", "run-1")
      await approve("run-2")
      const texts = ["user: /approve", "assistant: approved"]
      assert.deepStrictEqual(textsOf(agent.messages), texts)
      const joined = await rejoin("thread-1", "run-1")
      assert.deepStrictEqual(textsOf(joined.messages), texts)
      let outcome: string | undefined
      agent.subscribe({
        onTextMessageStartEvent: () => void stop("thread-1", "run-3"),
        onRunFinishedEvent: finished => {
          outcome = finished.outcome
        }
      })
      await say("/hang", "run-3")
      assert.strictEqual(outcome, "cancelled")
    })
  }
)
