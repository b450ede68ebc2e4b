import { readFileSync } from "node:fs"
import { assert, describe, expect, it } from "vitest"
import { render } from "../../scripts/docs/protocol.ts"
import * as EventMapping from "../../src/Gateway/EventMapping.ts"
import { isOfGateway, ofGateway } from "../../src/Gateway/Protocol/Namespaces.ts"
import * as Protocol from "../../src/Gateway/Protocol.ts"

const page = readFileSync(new URL("../../docs/reference/protocol.md", import.meta.url), "utf8")

describe("docs/reference/protocol.md", () => {
  it("is up to date", () => {
    expect(page, "Run: npm run docs").toBe(render(page))
  })

  it("names every request, answer, event and code", () => {
    const names = [
      ...Protocol.requestTypes,
      ...Object.values(Protocol.answerTypes),
      ...Protocol.followingTypes,
      ...Protocol.eventTypes,
      ...Object.keys(Protocol.errorMeanings),
      ...Protocol.SessionState.literals
    ]
    for (const name of names) expect(page).toContain(`\`${name}\``)
    for (const { code, name } of Object.values(Protocol.closeCodes)) expect(page).toContain(`| ${code} | ${name} |`)
    expect(page).toContain(EventMapping.longestDelta.toLocaleString("en-US"))
  })

  it("shows valid frames", () => {
    const frames = [...page.matchAll(/```json\n([\s\S]*?)```/g)].flatMap(([, block = ""]) => block.trim().split("\n"))
    expect(frames.length).toBeGreaterThan(4)
    const types = new Set<unknown>([
      ...Protocol.requestTypes,
      ...Object.values(Protocol.answerTypes),
      ...Protocol.followingTypes,
      ...Protocol.eventTypes,
      "error"
    ])
    for (const frame of frames) expect(types).toContain(JSON.parse(frame).type)
  })

  it("cannot be rendered without a place for each part", () => {
    expect(() => render("# Nothing")).toThrow("The page has no place for: requests")
    expect(() => render(page.replace("generated: limits", "generated: bounds"))).toThrow('There is no part "bounds"')
  })
})

it("namespaces are the gateway's if they are those of its records, and no others", () => {
  assert.isTrue(isOfGateway(ofGateway("acme", "sessions")))
  assert.isTrue(isOfGateway(ofGateway("acme", "threads")))
  for (const other of [
    "tenant:acme",
    "tenant:acme/threads/x",
    "x/tenant:acme/threads",
    "tenant/threads",
    "threads",
    ""
  ]) {
    assert.isFalse(isOfGateway(other), other)
  }
})
