/** The program of docs/use/sessions-http.md. */
import { stream } from "@durable-streams/client"
import { expect } from "@effect/vitest"
import { Effect, Option } from "effect"
import type { Event } from "../../../src/Gateway/Protocol.ts"
import { Changes } from "../../../src/Simulator/Changes.ts"
import { evaluate, fencesOf } from "../../Docs/Page.ts"
import { live } from "../Socket/Fixture.ts"
import { create, post } from "./Fixture.ts"

live("docs/use/sessions-http.md: its program shows the events of a session", function* ({ port }) {
  const base = `http://127.0.0.1:${port}`
  const { id } = yield* create(`${base}/api/v1/sessions`)
  const changes = new Changes()
  const shown: Array<Event> = []
  const show = (event: Event) => {
    shown.push(event)
    changes.notify()
  }
  const programs = fencesOf("docs/use/sessions-http.md").filter(({ language }) => language === "js")
  expect(programs).toHaveLength(1)
  const code = programs[0]!.code.replace(/^import .*\n/m, "").replace('live: "sse"', 'live: "sse", signal')
  const abort = yield* Effect.acquireRelease(
    Effect.sync(() => new AbortController()),
    abort => Effect.sync(() => abort.abort())
  )
  yield* Effect.promise(() => evaluate(code, { base, id, token: "any", stream, show, signal: abort.signal }))
  yield* post(`${base}/api/v1/sessions/${id}/messages`, { content: "hello" })
  yield* changes.until(() =>
    shown.some(({ type }) => type === "turn_completed") ? Option.some(undefined) : Option.none()
  )
})
