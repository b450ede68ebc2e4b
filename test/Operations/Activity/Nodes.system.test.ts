/** The activity of nodes that share one PostgreSQL, as processes: what each has recorded, and which does not answer. */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import type { Activity } from "../../../src/Operations/Activity/Model.ts"
import { createSession } from "../../Gateway/Socket/Fixture.ts"
import { reasonToSkip } from "../../postgres/Server.ts"
import * as Environment from "../../service/Environment.ts"
import * as Gateways from "../../service/Gateways.ts"
import { key } from "../../service/Service.ts"

const activityOf = ({ url }: { readonly url: string }) =>
  Effect.promise(async () => {
    const response = await fetch(`${url}/api/v1/activity`, { headers: { authorization: `Bearer ${key}` } })
    assert.strictEqual(response.status, 200)
    return (await response.json()) as Activity
  })

const answering = ({ nodes }: Activity): ReadonlyArray<string> =>
  nodes.flatMap(({ id, isAnswering }) => (isAnswering ? [id] : []))

layer(Environment.layer, { excludeTestServices: true })(`the activity of nodes ${reasonToSkip ?? ""}`, it => {
  it.scoped.skipIf(reasonToSkip !== undefined)("has each, also one that is paused or killed", () =>
    Effect.gen(function* () {
      // Nodes that do not answer are listed until their leases end.
      const { start } = yield* Gateways.make({ isLinked: true, env: { SESSION_LEASE: "1 minute" } })
      const nodes = yield* Effect.all([start, start, start], { concurrency: "unbounded" })
      const [first, paused, killed] = nodes
      yield* Effect.flatMap(first.client, createSession)
      const sampled = ({ nodes }: Activity) => nodes.every(({ series }) => (series?.at.length ?? 0) > 0)
      const whole = yield* Effect.repeat(Effect.delay(activityOf(first), "100 millis"), {
        until: found => answering(found).length === 3 && sampled(found) && found.holdings?.sessions?.total === 1
      })
      assert.strictEqual(whole.unlisted, 0)
      const [ofFirst, ofPaused, ofKilled] = yield* Effect.forEach(nodes, node =>
        Effect.map(activityOf(node), found => found.nodes[0]!.id)
      )
      // The same of each, whichever is asked.
      assert.sameMembers([...answering(whole)], [ofFirst!, ofPaused!, ofKilled!])
      paused.signal("SIGSTOP")
      killed.signal("SIGKILL")
      const rest = yield* activityOf(first)
      assert.deepStrictEqual(answering(rest), [ofFirst!])
      assert.sameDeepMembers(rest.nodes.slice(1), [
        { id: ofPaused!, isAnswering: false },
        { id: ofKilled!, isAnswering: false }
      ])
      paused.signal("SIGCONT")
      yield* Effect.repeat(Effect.delay(activityOf(first), "100 millis"), {
        until: found => answering(found).includes(ofPaused!)
      })
    })
  )
})
