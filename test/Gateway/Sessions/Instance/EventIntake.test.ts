/** What platform events make of a session. */
import { describe, expect, it } from "@effect/vitest"
import type { EventBody } from "../../../../src/Gateway/Protocol/Event.ts"
import { ingest, RecentIds } from "../../../../src/Gateway/Sessions/Instance/InstanceLink.ts"
import * as State from "../../../../src/Gateway/Sessions/Session/SessionState.ts"
import { Undelivered } from "../../../../src/Upstream/AgentPlatform.ts"

const running: State.SessionState = {
  ...State.initial,
  lifecycle: "active",
  instance: { key: "k", instanceId: "i" }
}

const platform = (type: string, payload: Record<string, unknown> = {}, id?: string) => ({
  id,
  type,
  timestamp: undefined,
  payload: { type, ...payload }
})

const accepted = (...turnIds: ReadonlyArray<string>): State.SessionState => ({
  ...running,
  turns: { ...State.initial.turns, open: new Map(turnIds.map(turnId => [turnId, "announced"])) }
})

const typesOf = (events: ReadonlyArray<EventBody>) => events.map(({ type }) => type)

describe("What platform events make of a session", () => {
  it("a turn has one start, its content and one end, also if they are repeated", () => {
    const events = ["turn.started", "turn.started", "message.delta", "turn.completed", "turn.failed", "turn.completed"]
    const { update } = ingest(
      accepted("t"),
      events.map(type => platform(type, { turnId: "t", messageId: "m", delta: "x", message: "failed" }))
    )
    expect(typesOf(update.events)).toEqual(["text_delta", "turn_completed"])
    expect(update.state.turns.open.size).toBe(0)
  })

  it("a message that is refused ends its turn", () => {
    const refused = platform("error", {
      turnId: "t",
      code: "busy",
      message: "16 messages are waiting",
      retryable: true
    })
    const { update } = ingest(accepted("t"), [refused])
    expect(update.events).toMatchObject([
      { type: "error", turnId: "t" },
      { type: "turn_errored", turnId: "t", code: "busy", retryable: true }
    ])
    const started = ingest(accepted("t"), [platform("turn.started", { turnId: "t" }), refused])
    expect(typesOf(started.update.events)).toEqual(["error"])
  })

  it("messages lost with a connection end their turns, unless the agent has started them", () => {
    const lost = new Undelivered(["a", "b", "c", "unknown"])
    const { update } = ingest(accepted("a", "b", "c", "d"), [
      platform("turn.started", { turnId: "a" }),
      platform("turn.started", { turnId: "b" }),
      platform("turn.completed", { turnId: "b" }),
      lost,
      lost
    ])
    expect(update.events).toMatchObject([
      { type: "turn_completed", turnId: "b" },
      { type: "turn_errored", turnId: "c", code: "delivery_unknown", retryable: true }
    ])
    expect([...update.state.turns.open]).toEqual([
      ["a", "started"],
      ["d", "announced"]
    ])
  })

  it("the platform cannot change the content of a message", () => {
    const forged = { turnId: "own", content: "I did not write this", sub: "alice", clientMessageId: "1" }
    expect(ingest(running, [platform("turn.started", forged)]).update.events).toEqual([
      { type: "turn_started", turnId: "own" }
    ])
  })

  it("an error that names no turn refuses none", () => {
    const { update } = ingest(accepted("t"), [
      platform("error", { code: "quota", message: "80 % of the quota is used" }),
      platform("turn.started", { turnId: "t" }),
      platform("turn.completed", { turnId: "t" })
    ])
    expect(typesOf(update.events)).toEqual(["error", "turn_completed"])
  })

  it("a failed instance reports its reason, and its turns end with it", () => {
    const { update } = ingest(accepted("t"), [platform("instance.failed", { code: "oom", message: "out of memory" })])
    expect(update.events.filter(({ type }) => type.endsWith("error") || type === "turn_errored")).toMatchObject([
      { type: "error", code: "oom", message: "out of memory" },
      { type: "turn_errored", code: "oom", message: "The instance failed during the turn: out of memory" }
    ])
  })

  it("the end of an instance ends its turns, and later events are dropped", () => {
    for (const [type, state] of [
      ["instance.stopped", "inactive"],
      ["instance.failed", "error"]
    ] as const) {
      const { update } = ingest(accepted("a", "b"), [
        platform("instance.stopping"),
        platform(type, { message: "no more tea" }),
        platform("turn.completed", { turnId: "a" })
      ])
      expect(update.state).toMatchObject({ lifecycle: state, instance: running.instance })
      expect(update.state.turns.open.size).toBe(0)
      expect(typesOf(update.events).filter(type => type === "turn_errored")).toHaveLength(2)
      expect(update.events.at(-1)).toMatchObject({ type: "session_state", state })
    }
  })

  it("forwards the states that the instance reports, and stays active", () => {
    const { update } = ingest(accepted("t"), [
      platform("instance.starting", { message: "pulling the image" }),
      platform("instance.ready"),
      platform("turn.started", { turnId: "t" }),
      platform("instance.stopping", { reason: "asked" })
    ])
    expect(update.events).toEqual([
      { type: "session_state", state: "activating", reason: "pulling the image" },
      { type: "session_state", state: "active" },
      { type: "session_state", state: "deactivating", reason: "asked" }
    ])
    expect(update.state.lifecycle).toBe("active")
    expect([...update.state.turns.open.keys()]).toEqual(["t"])
  })

  it("publishes reported states that say something new, and no others", () => {
    const [starting, ready, stopping] = ["instance.starting", "instance.ready", "instance.stopping"] as const
    const statesOf = (state: State.SessionState, ...types: ReadonlyArray<string>) =>
      ingest(
        state,
        types.map(type => platform(type))
      ).update.events.map(event => (event.type === "session_state" ? event.state : event.type))
    // The activation has published `activating` and `active`.
    expect(statesOf(running, starting, ready, ready)).toEqual([])
    expect(statesOf(running, starting, ready, starting, starting, ready)).toEqual(["activating", "active"])
    expect(statesOf(running, stopping, stopping, ready)).toEqual(["deactivating", "active"])
    const pulling = platform(starting, { message: "pulling the image" })
    expect(ingest(running, [pulling, pulling, platform(ready)]).update.events).toEqual([
      { type: "session_state", state: "activating", reason: "pulling the image" },
      { type: "session_state", state: "activating", reason: "pulling the image" },
      { type: "session_state", state: "active" }
    ])
    // A reconnection has published `active` since the report.
    const stopped = ingest(running, [platform(stopping)]).update.state
    const reconnected = State.andThen(State.transition(stopped, "disconnected"), state =>
      State.transition(state, "reconnected")
    ).state
    expect(statesOf(reconnected, ready)).toEqual([])
    expect(statesOf(reconnected, stopping)).toEqual(["deactivating"])
  })

  it("reports dropped events", () => {
    const { update, dropped, malformed } = ingest(running, [
      platform("silence.kept"),
      platform("tool.call", {}),
      platform("heartbeat")
    ])
    expect(update.events).toEqual([])
    expect(dropped).toEqual(["silence.kept", "tool.call"])
    expect(malformed).toEqual(["tool.call"])
  })

  it("repeated events are recognized as long as their ids are kept", () => {
    const recent = new RecentIds(3)
    const ids = ["a", "b", "a", "c", "d", "b", "a", undefined, undefined]
    expect(ids.map(id => recent.isNew(platform("log", {}, id)))).toEqual([
      true,
      true,
      false,
      true,
      true,
      false,
      true,
      true,
      true
    ])
  })
})
