/** What the official client makes of the events for it, compared with the projection. */
import { afterEach, assert, beforeEach, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { type MockInstance, vi } from "vitest"
import type { EventBody } from "../../../src/Client/SessionModel.ts"
import { anyEvents, numbered, usualEvents } from "../../Client/Conversation/Sessions.ts"
import { times } from "../../Scale.ts"
import { comparable, follow, makeClient, projection } from "./Joining.ts"

describe("Translation", () => {
  let warned: MockInstance

  beforeEach(() => {
    warned = vi.spyOn(console, "warn").mockImplementation(() => {})
    vi.spyOn(console, "error").mockImplementation(() => {})
  })

  afterEach(() => {
    vi.restoreAllMocks()
  })

  it.each([
    ["usual turns", usualEvents],
    ["any events", anyEvents]
  ])("gives the client the projection, wherever it joins and joins again: %s", async (_, sessions) => {
    const cuts = fc.array(fc.nat({ max: 60 }), { minLength: 3, maxLength: 3 })
    await fc.assert(
      fc.asyncProperty(sessions, cuts, fc.boolean(), async (events, places, isShuffled) => {
        const [first, second, third] = places.map(place => Math.min(place, events.length)).sort((a, b) => a - b)
        warned.mockClear()
        const client = makeClient()
        await client.run(theirs => follow(events.slice(0, first), events.slice(first, second), theirs))
        assert.deepStrictEqual(comparable(client.agent.messages), comparable(projection(events.slice(0, second))))
        if (isShuffled) client.agent.messages.reverse()
        await client.run(theirs => follow(events.slice(0, third), events.slice(third), theirs))
        assert.deepStrictEqual(comparable(client.agent.messages), comparable(projection(events)))
        const others = warned.mock.calls
          .flat()
          .filter(text => !/already exists with name|state patch/.test(String(text)))
        assert.deepStrictEqual(others, [])
      }),
      { numRuns: times(600) }
    )
  })

  const [one, two] = [{ turnId: "t1" }, { turnId: "t2" }] as const
  const begin = (turn: { readonly turnId: string }): EventBody => ({
    type: "turn_started",
    ...turn,
    content: turn.turnId
  })
  const call = { callId: "c", name: "search" } as const
  const difficult: Readonly<Record<string, ReadonlyArray<EventBody>>> = {
    "a part of an older turn that comes after a newer turn": [
      begin(one),
      begin(two),
      { type: "text_delta", ...two, messageId: "2", text: "new" },
      { type: "text_delta", ...one, messageId: "1", text: "old" }
    ],
    "a call whose id comes again in another turn": [
      begin(one),
      { type: "tool_call", ...one, ...call, args: { a: 1 } },
      { type: "tool_result", ...one, ...call, result: "x" },
      begin(two),
      { type: "tool_call", ...two, ...call, args: { b: 2 } },
      { type: "tool_error", ...two, ...call, message: "no" }
    ],
    "a call that is not as it was written": [
      begin(one),
      { type: "tool_call_start", ...one, callId: "c", name: "a" },
      { type: "tool_call_delta", ...one, callId: "c", text: '{"a":' },
      { type: "tool_call", ...one, callId: "c", name: "b", args: { z: 1 } }
    ],
    "a text that is not as it was written": [
      begin(one),
      { type: "text_delta", ...one, messageId: "1", text: "ab" },
      { type: "text_end", ...one, messageId: "1", text: "xyz" }
    ],
    "two open steps of one title, and a subagent that works twice": [
      begin(one),
      { type: "step_started", ...one, stepId: "1", title: "Build" },
      { type: "step_started", ...one, stepId: "2", title: "Build" },
      { type: "subagent_started", ...one, subagentId: "s" },
      { type: "subagent_completed", ...one, subagentId: "s", result: null },
      { type: "subagent_started", ...one, subagentId: "s", agentType: "coder", task: "more" }
    ],
    "a change of the state that is not JSON Patch": [
      begin(one),
      { type: "state_snapshot", ...one, state: { a: 1 } },
      { type: "state_delta", ...one, patch: [{ op: "replace", path: "/a", value: 2 }] },
      { type: "state_delta", ...one, patch: { a: 3 } }
    ]
  }

  it("changes no state that the client does not have", () => {
    const [before, delta, ...after] = numbered([
      { type: "state_snapshot", ...one, state: { a: 1 } },
      { type: "state_delta", ...one, patch: [{ op: "replace", path: "/a", value: 2 }] },
      { type: "state_snapshot", ...one, state: { a: 3 } },
      { type: "state_delta", ...one, patch: [{ op: "remove", path: "/a" }] }
    ])
    const joined = follow([before!], [delta!, ...after], [], false).filter(({ type }) => /STATE_|CUSTOM/.test(type))
    assert.deepStrictEqual(
      joined.map(({ type }) => type),
      ["CUSTOM", "STATE_SNAPSHOT", "STATE_DELTA"]
    )
  })

  it.each(Object.entries(difficult))("gives the client the projection, with %s", async (_, bodies) => {
    const events = numbered(bodies)
    for (let cut = 0; cut <= events.length; cut++) {
      const client = makeClient()
      await client.run(theirs => follow([], events.slice(0, cut), theirs))
      await client.run(theirs => follow(events.slice(0, cut), events.slice(cut), theirs))
      assert.deepStrictEqual(comparable(client.agent.messages), comparable(projection(events)), `cut at ${cut}`)
      if (bodies.some(({ type }) => type === "state_snapshot")) assert.deepStrictEqual(client.agent.state, { a: 2 })
    }
  })
})
