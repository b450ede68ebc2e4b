import { describe, expect, it } from "vitest"
import * as EventMapping from "../../src/Gateway/EventMapping.ts"
import * as Protocol from "../../src/Gateway/Protocol.ts"
import { cases, malformed, map } from "./EventMapping/Cases.ts"

const neverMalformed = new Set(["heartbeat", "log", "rate_limited", "error"])

describe("the mapping", () => {
  it("has exactly the types that are tested here", () => {
    const tried = cases.map(([type]) => type)
    expect(tried).toStrictEqual([...EventMapping.platformTypes])
    const maybeMalformed = tried.filter(type => !neverMalformed.has(type) && !type.startsWith("instance."))
    expect(malformed.map(([type]) => type)).toStrictEqual(maybeMalformed)
  })

  it.each(cases)("%s", (type, payload, events) => {
    expect(map(type, payload)).toStrictEqual({ events })
  })

  it("can produce every client event", () => {
    const made = new Set(cases.flatMap(([, , events]) => events.map(event => event.type)))
    expect([...made].sort()).toStrictEqual([...Protocol.eventTypes].sort())
  })

  it.each(malformed)("a malformed %s without text is dropped", (type, payload) => {
    expect(map(type, payload)).toStrictEqual({ events: [], dropped: type, malformed: type })
  })

  it.each(malformed)("a malformed %s with text is text", (type, payload) => {
    const { turnId } = payload
    const named = typeof turnId === "string" && turnId !== "" ? { turnId } : {}
    expect(map(type, { ...payload, content: "words" })).toStrictEqual({
      events: [{ type: "text_delta", ...named, text: "words" }],
      malformed: type
    })
  })

  it.each([
    ["content", { content: "c", text: "t", delta: "d" }, "c"],
    ["text", { text: "t", delta: "d" }, "t"],
    ["delta", { delta: "d" }, "d"],
    ["whichever is text", { content: ["c"], text: "", delta: "d" }, "d"]
  ])("takes the text of an unknown event from %s", (_, payload, text) => {
    expect(map("poem.recited", payload)).toStrictEqual({ events: [{ type: "text_delta", text }] })
    expect(map("poem.recited", { ...payload, turnId: "t1" })).toStrictEqual({
      events: [{ type: "text_delta", turnId: "t1", text }]
    })
  })

  it.each(["poem.recited", "constructor", "__proto__", "toString", "Message.delta", "text_delta"])(
    "drops %s without text and reports it",
    type => {
      for (const payload of [
        {},
        { content: "" },
        { content: null },
        { text: { text: "deep" } },
        { deep: { text: "x" } }
      ]) {
        expect(map(type, payload)).toStrictEqual({ events: [], dropped: type })
      }
    }
  )

  it("does not read text from the prototype", () => {
    const payload: unknown = JSON.parse('{"type":"poem","__proto__":{"content":"inherited"}}')
    expect(EventMapping.map({ type: "poem", payload: Object(payload) })).toStrictEqual({ events: [], dropped: "poem" })
  })
})
