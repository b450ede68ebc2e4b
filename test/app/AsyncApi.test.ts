import { readFileSync, writeFileSync } from "node:fs"
import { Ajv } from "ajv"
import { Either, FastCheck as fc, Schema } from "effect"
import { describe, expect, it } from "vitest"
import * as AsyncApi from "../../src/app/AsyncApi.ts"
import { isObject, type JsonObject } from "../../src/base/Json/Parsing.ts"
import { version } from "../../src/base/Version.ts"
import * as Examples from "../../src/Gateway/Protocol/Examples.ts"
import * as Protocol from "../../src/Gateway/Protocol.ts"
import { decodeRequest } from "../../src/Gateway/Requests.ts"
import * as Frames from "../../src/Kv/ChangeFeed/Follower.ts"
import { Page } from "../../src/Kv/ChangeFeed/Pages.ts"
import * as Description from "../../src/Kv/Description.ts"
import { FollowParams } from "../../src/Kv/Requests.ts"
import { onlyLong, times } from "../Scale.ts"

const numRuns = times(300)

const golden = new URL("../golden/asyncapi.json", import.meta.url)

const document = AsyncApi.document()
const { messages, schemas } = document.components

const ajv = new Ajv({ strict: false, allErrors: true })
ajv.addSchema({ $id: "document", components: { schemas } })

const checkerOf = (payload: unknown) =>
  ajv.compile(JSON.parse(JSON.stringify(payload).replaceAll('"$ref":"#/', '"$ref":"document#/')))

const checkers = new Map(Object.entries(messages).map(([name, message]) => [name, checkerOf(message.payload)]))

/** Follows a reference within the document. */
const resolve = (reference: unknown): unknown => {
  const path = isObject(reference) && typeof reference.$ref === "string" ? reference.$ref.split("/").slice(1) : []
  return path.reduce<unknown>((at, name) => (isObject(at) ? at[name] : undefined), document)
}

const list = (u: unknown): ReadonlyArray<unknown> => (Array.isArray(u) ? u : [])

/** The text in a frame of the change feed. */
const frameText = (frame: Buffer): string => frame.toString("utf8", frame[1]! < 126 ? 2 : 4)

/** All values of members called `$ref`, anywhere. */
const references = (u: unknown): ReadonlyArray<JsonObject> => {
  if (Array.isArray(u)) return u.flatMap(references)
  if (!isObject(u)) return []
  return typeof u.$ref === "string" ? [u] : Object.values(u).flatMap(references)
}

/** Values that members may have or not. */
const values = fc.oneof(
  fc.constantFrom<unknown>(undefined, null, true, 0, -1, 1.5, 7, "", "s", "a b", [], {}, ["a"], { A: 1 }),
  fc.constantFrom<unknown>(...[128, 129, 257, 2049].map(length => "x".repeat(length)))
)

describe("the AsyncAPI document", () => {
  // The parser takes seconds to load.
  onlyLong(it)("is AsyncAPI 3.0.0 by the official parser, also that of an application", async () => {
    const { DiagnosticSeverity, Parser } = await import("@asyncapi/parser")
    const feed = JSON.stringify(AsyncApi.document({ changeFeed: "/store/changes/ws" }))
    for (const [text, count] of [
      [AsyncApi.text(), Object.keys(messages).length],
      [feed, Object.keys(messages).filter(name => name.endsWith("Frame")).length]
    ] as const) {
      const { document, diagnostics } = await new Parser().parse(text)
      // Below warnings are hints, such as one that there is a version 3.1.0.
      expect(diagnostics.filter(({ severity }) => severity <= DiagnosticSeverity.Warning)).toStrictEqual([])
      expect(document?.version()).toBe("3.0.0")
      expect(document?.messages().all()).toHaveLength(count)
    }
  })

  it("is what test/golden/asyncapi.json says", () => {
    const text = `${JSON.stringify(document, null, 2)}\n`
    if (process.env.UPDATE_GOLDEN === "1") writeFileSync(golden, text)
    expect(
      JSON.parse(text),
      "The protocol changed. If that is intended, rewrite the file with UPDATE_GOLDEN=1 and check the difference."
    ).toStrictEqual(JSON.parse(readFileSync(golden, "utf8")))
  })

  it("is the same object every time, and the same as its text", () => {
    expect(AsyncApi.document()).toBe(document)
    expect(JSON.parse(AsyncApi.text())).toStrictEqual(document)
    expect(document.info.version).toBe(version)
  })

  it("has only valid references, without siblings", () => {
    const all = references(document)
    expect(all.length).toBeGreaterThan(100)
    for (const reference of all) {
      expect(resolve(reference), JSON.stringify(reference)).toBeDefined()
      const { $ref: _, description: __, ...siblings } = reference
      expect(siblings).toStrictEqual({})
    }
  })

  it("has every request with its answers, and every event", () => {
    expect(Object.keys(document.operations)).toStrictEqual([...Protocol.requestTypes, "events", "changes"])
    for (const type of Protocol.requestTypes) {
      const { messages: sent, reply } = document.operations[type]!
      expect(list(sent).map(message => resolve(resolve(message)))).toMatchObject([{ name: type }])
      const answers = isObject(reply) ? list(reply.messages) : []
      expect(answers.map(message => resolve(resolve(message)))).toMatchObject([
        { name: Protocol.answerTypes[type] },
        { name: "error" }
      ])
    }
    const events = list(document.operations.events?.messages).map(message => resolve(resolve(message)))
    expect(events).toMatchObject([...Protocol.eventTypes, ...Protocol.followingTypes].map(name => ({ name })))
  })

  it.each(Object.keys(messages))("accepts its own example of %s", name => {
    const examples = list(messages[name]?.examples)
    expect(examples).toHaveLength(1)
    for (const example of examples) {
      const check = checkers.get(name)!
      expect(isObject(example) && check(example.payload), JSON.stringify(check.errors)).toBe(true)
    }
  })

  it("accepts what the gateway accepts, and refuses what it refuses", () => {
    const requests = Object.entries(messages).filter(([name]) => name.endsWith("Request"))
    fc.assert(
      fc.property(
        fc.constantFrom(...requests).chain(([name, { name: type }]) => {
          const example: JsonObject = { ...Object.values(Examples.requests).find(frame => frame.type === type) }
          return fc.tuple(fc.constant(name), fc.constant(example), fc.constantFrom(...Object.keys(example)), values)
        }),
        ([name, example, field, value]) => {
          const text = JSON.stringify({ ...example, [field]: value })
          const byGateway = Either.isRight(decodeRequest(text))
          expect(checkers.get(name)!(JSON.parse(text)), text).toBe(byGateway)
        }
      ),
      { numRuns }
    )
  })

  it("accepts the events that clients accept, and refuses the others", () => {
    const isEvent = Schema.is(Protocol.Event)
    fc.assert(
      fc.property(
        fc.constantFrom(...Examples.allBodies).chain(body => {
          const event: JsonObject = { ...Protocol.event(Examples.envelope, body) }
          return fc.tuple(fc.constant(event), fc.constantFrom(...Object.keys(event)), values)
        }),
        ([event, field, value]) => {
          const changed: unknown = JSON.parse(JSON.stringify({ ...event, [field]: value }))
          const name = Object.keys(messages).find(key => key.endsWith("Event") && messages[key]?.name === event.type)
          expect(checkers.get(name!)!(changed), JSON.stringify(changed)).toBe(isEvent(changed))
        }
      ),
      { numRuns }
    )
  })

  it("has the frames of the change feed as they are sent, and no others", () => {
    const { key, namespace, seq, tenantId } = Description.change
    const change = { seq, tenant: tenantId, namespace, key, json: JSON.stringify(Description.change) }
    const entry = { key, json: JSON.stringify(Description.entry) }
    const sent = [
      new Page([change], 7, "e", true).frame,
      Frames.heartbeatFrame(7, "e"),
      Frames.initialFrame([entry]),
      Frames.initialEndFrame({ lastSeq: 7, epoch: "e" }),
      Frames.resetFrame("e", 7)
    ].map(frame => JSON.parse(frameText(frame)))
    const known = list(document.operations.changes?.messages).map(message => resolve(resolve(message)))
    expect(known).toMatchObject(sent.map(({ type }) => ({ name: type })))
    const names = Object.keys(messages).filter(name => name.endsWith("Frame"))
    for (const [index, frame] of sent.entries()) {
      const check = checkers.get(names[index]!)!
      expect([frame, check(frame), check.errors]).toEqual([frame, true, null])
      for (const member of Object.keys(frame)) {
        const { [member]: _, ...rest } = frame
        expect([member, check(rest)]).toEqual([member, false])
      }
    }
    expect(document.channels.changeFeed?.["x-close-codes"]).toStrictEqual(Object.values(Frames.closes))
    expect(
      Object.keys(Object(Object(document.channels.changeFeed?.bindings).ws.query.properties)).sort()
    ).toStrictEqual(Object.keys(FollowParams.fields).sort())
  })

  it("has the WebSockets that an application serves, where it serves them", () => {
    const feed = AsyncApi.document({ changeFeed: "/store/changes/ws" })
    expect(Object.keys(feed.channels)).toStrictEqual(["changeFeed"])
    expect(feed.channels.changeFeed?.address).toBe("/store/changes/ws")
  })
})
