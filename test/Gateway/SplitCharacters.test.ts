import { describe, expect, it } from "@effect/vitest"
import { Either, FastCheck as fc } from "effect"
import * as EventMapping from "../../src/Gateway/EventMapping.ts"
import type { EventBody } from "../../src/Gateway/Protocol/Event.ts"
import { ingest } from "../../src/Gateway/Sessions/Instance/InstanceLink.ts"
import * as State from "../../src/Gateway/Sessions/Session/SessionState.ts"
import * as PlatformEvent from "../../src/Upstream/PlatformEvent.ts"
import { codePoint } from "../CodePoint.ts"
import { times } from "../Scale.ts"

type Frame = Readonly<Record<string, unknown>> & { readonly type: string }

const m = { turnId: "t", messageId: "m" }
const text = (delta: string, ids = m): Frame => ({ type: "message.delta", ...ids, delta })
const thinking = (delta: string): Frame => ({ type: "thinking.delta", turnId: "t", thinkingId: "h", delta })
const tool = (delta: string, toolCallId = "c"): Frame => ({ type: "tool.call.delta", turnId: "t", toolCallId, delta })
const terminal = (data: string, stream = "stdout"): Frame => ({
  ...{ type: "terminal.output", turnId: "t", terminalId: "x" },
  ...{ data, stream }
})

/** The client events of frames, each as it comes over the wire. */
const mapAll = (...frames: ReadonlyArray<Frame>): ReadonlyArray<EventBody> => {
  let halves = EventMapping.noHalves
  return frames.flatMap(frame => {
    const event = Either.getOrThrow(PlatformEvent.fromFrame(JSON.stringify(frame)))
    const next = EventMapping.mapJoined(halves, event, {})
    halves = next.halves
    expect([...halves.values()].every(({ text }) => text.length === 1)).toBe(true)
    return next.mapped.events
  })
}

const [high, low] = ["\ud83d", "\ude00"]

const shown = (events: ReadonlyArray<EventBody>) =>
  events.map(event => ("text" in event ? `${event.type} ${event.text}` : event.type))

describe("characters that are split between two deltas", () => {
  it("are joined, in each type of delta", () => {
    for (const delta of [text, thinking, tool, terminal]) {
      const events = mapAll(delta(`a${high}`), delta(`${low}b`))
      expect(shown(events).map(one => one.split(" ")[1])).toEqual(["a", "😀b"])
    }
    expect(shown(mapAll(text(high), text(low)))).toEqual(["text_delta 😀"])
    expect(shown(mapAll({ type: "poem", text: high }, { type: "poem", text: low }))).toEqual(["text_delta 😀"])
  })

  it("are joined across events of other blocks and types", () => {
    const between: ReadonlyArray<Frame> = [
      { type: "usage", inputTokens: 1 },
      thinking("t"),
      tool(high),
      terminal("o"),
      { type: "tool.call", turnId: "t", toolCallId: "other", name: "n" }
    ]
    expect(shown(mapAll(text(`a${high}`), ...between, text(low), tool(low)))).toEqual([
      ...["text_delta a", "usage_update", "thinking_delta t", "terminal_output o", "tool_call"],
      ...["text_delta 😀", "tool_call_delta 😀"]
    ])
  })

  it("are replaced where the block ends without the other half, before its end", () => {
    const ends: ReadonlyArray<readonly [Frame, Frame, string]> = [
      [text(high), { type: "message.complete", ...m }, "text_end undefined"],
      [thinking(high), { type: "thinking.complete", turnId: "t", thinkingId: "h" }, "thinking_end"],
      [tool(high), { type: "tool.call", turnId: "t", toolCallId: "c", name: "n" }, "tool_call"],
      [terminal(high), { type: "terminal.exited", turnId: "t", terminalId: "x" }, "terminal_exited"],
      [text(high), { type: "turn.completed", turnId: "t" }, "turn_completed"],
      [text(high), { type: "instance.stopped" }, "session_state"]
    ]
    for (const [delta, end, type] of ends) {
      const events = mapAll(delta, end)
      expect(shown(events)[0]).toMatch(/ \ufffd$/)
      expect(events.map(event => event.type)[1]).toBe(type.split(" ")[0])
      expect(shown(mapAll(delta, end, delta)).filter(one => one.endsWith("\ufffd"))).toHaveLength(1)
    }
  })

  it("are replaced if another block of the type continues, or if no second half follows", () => {
    expect(mapAll(text(high), text("b", { turnId: "t", messageId: "other" }))).toMatchObject([
      { messageId: "m", text: "\ufffd" },
      { messageId: "other", text: "b" }
    ])
    expect(shown(mapAll(terminal(high), terminal("e", "stderr")))).toEqual([
      "terminal_output \ufffd",
      "terminal_output e"
    ])
    expect(shown(mapAll(text(`a${high}`), text(""), text("b"), text(low)))).toEqual([
      ...["text_delta a", "text_delta ", "text_delta \ufffdb", "text_delta \ufffd"]
    ])
  })

  it("leave no lone surrogate in any other field", () => {
    const [event] = mapAll({ type: "message.delta", turnId: `t${high}`, messageId: "m", delta: `a${high}` })
    expect(event).toEqual({ type: "text_delta", turnId: "t\ufffd", messageId: "m", text: "a" })
    const frame: Frame = { type: "tool.result", turnId: "t", toolCallId: "c", output: { a: high } }
    expect(mapAll(frame)).toMatchObject([{ result: { a: "\ufffd" } }])
  })

  it("leave deltas within their limit", () => {
    const events = mapAll(text(high), text(low + "x".repeat(EventMapping.longestDelta - 1)))
    expect(events.map(event => ("text" in event ? event.text?.length : 0))).toEqual([EventMapping.longestDelta, 1])
  })

  it("any text arrives as it is, however it is split", () => {
    const parts = fc.array(fc.string({ unit: codePoint, maxLength: 6 }), { maxLength: 8 })
    const split = fc.tuple(parts, fc.infiniteStream(fc.integer({ min: 1, max: 3 })))
    fc.assert(
      fc.property(split, ([words, sizes]) => {
        const whole = `${words.join("")}😀${words.join("😀")}${high}`
        const frames: Array<Frame> = []
        for (let at = 0; at < whole.length; ) {
          const size = sizes.next().value
          frames.push(text(whole.slice(at, at + size)))
          at += size
        }
        const events = mapAll(...frames, { type: "message.complete", ...m })
        const joined = events.flatMap(event => (event.type === "text_delta" ? [event.text] : [])).join("")
        expect(joined).toBe(whole.toWellFormed())
      }),
      { numRuns: times(200) }
    )
  })

  it("are held back from one batch of events to the next", () => {
    const running: State.SessionState = {
      ...State.initial,
      lifecycle: "active",
      instance: { key: "k", instanceId: "i" }
    }
    const read = (frame: Frame) => Either.getOrThrow(PlatformEvent.fromFrame(JSON.stringify(frame)))
    const first = ingest(running, [read(text(`a${high}`))])
    expect(shown(first.update.events)).toContain("text_delta a")
    // An update that is tried again gives the same.
    for (let tries = 0; tries < 2; tries++) {
      const second = ingest(first.update.state, [read(text(low))], first.halves)
      expect(shown(second.update.events)).toEqual(["text_delta 😀"])
      expect(second.halves.size).toBe(0)
    }
  })
})
