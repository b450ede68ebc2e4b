import { describe, expect, it } from "@effect/vitest"
import { FastCheck as fc } from "effect"
import { applyFault, type Fault, isCloseCode, noFaults } from "../../src/Simulator/Fault.ts"
import { EventHistory } from "../../src/Simulator/Instance.ts"
import { words } from "../../src/Simulator/Script.ts"
import { callOf } from "../../src/Simulator/TrafficLog.ts"
import { Workspace } from "../../src/Simulator/Workspace.ts"
import { codePoint } from "../CodePoint.ts"
import { times } from "../Scale.ts"

const runs = times(100)

describe("a path", () => {
  it("has each variable segment decoded once", () => {
    const path = fc.string({ unit: codePoint, minLength: 1, maxLength: 30 }).filter(text => text.isWellFormed())
    fc.assert(
      fc.property(path, path, (id, file) => {
        const url = `/api/v1/instances/${encodeURIComponent(id)}/files/${encodeURIComponent(file)}`
        expect(callOf("platform", "GET", url)).toEqual({ operation: "read_file", parameters: [id, file] })
        expect(callOf("platform", "GET", `${url}/at/3`)?.parameters).toEqual([id, file, "3"])
      }),
      { numRuns: runs }
    )
  })

  for (const [method, path] of [
    ["GET", "/api/v1/instances/a/files/b/c"],
    ["GET", "/api/v1/instances//files"],
    ["GET", "/api/v1/instances/%zz/files"],
    ["POST", "/health"],
    ["GET", "/api/v1/instances"],
    ["GET", "/health/"],
    ["POST", "/api/v1/generate/stream"]
  ] as const) {
    it(`of ${method} ${path} leads nowhere on the platform`, () => {
      expect(callOf("platform", method, path)).toBe(undefined)
    })
  }
})

describe("a history", () => {
  it("keeps the newest frames, and replays from where it was left", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 20 }),
        fc.integer({ min: 0, max: 60 }),
        fc.nat(70),
        (limit, count, after) => {
          const history = new EventHistory(limit)
          for (let i = 0; i < count; i++) history.append({ type: "log", i }, i)
          const kept: Array<number> = []
          for (let number = history.first; number <= history.last; number++) {
            kept.push(JSON.parse(String(history.get(number))).i)
          }
          expect(kept).toEqual(Array.from({ length: count }, (_, i) => i).slice(-limit))
          const from = history.numberAfter(`e${after}`)
          expect(from).toBe(after > count ? history.first : Math.max(history.first, after + 1))
          expect(history.get(history.first - 1)).toBe(undefined)
        }
      ),
      { numRuns: runs }
    )
  })
})

describe("a workspace", () => {
  const paths = fc.constantFrom("a", "b", "d/c")
  const step = fc.oneof(
    fc.record({ do: fc.constant("write" as const), path: paths, content: fc.string({ maxLength: 20 }) }),
    fc.record({ do: fc.constant("delete" as const), path: paths }),
    fc.record({ do: fc.constant("rename" as const), path: paths, to: paths })
  )

  it("never uses an iteration twice, never changes one, and stays within its bounds", () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), steps => {
        const workspace = new Workspace({ files: 2, workspaceBytes: 100, iterations: 5 })
        const seen = new Map<string, string>()
        let now = 0
        for (const taken of steps) {
          now++
          if (taken.do === "write") workspace.write(taken.path, taken.content, now)
          if (taken.do === "delete") workspace.delete(taken.path)
          if (taken.do === "rename") workspace.rename(taken.path, taken.to, now)
          let bytes = 0
          for (const path of ["a", "b", "d/c"]) {
            const history = workspace.history(path) ?? []
            expect(history.length).toBeLessThanOrEqual(5)
            expect(history.map(({ iteration }) => iteration)).toEqual(
              history.map((_, i) => (history[0]?.iteration ?? 0) + i)
            )
            for (const { iteration, size } of history) {
              bytes += size
              const content = workspace.at(path, iteration)!.content
              expect(seen.get(`${path} ${iteration}`) ?? content).toBe(content)
              seen.set(`${path} ${iteration}`, content)
            }
          }
          expect(bytes).toBeLessThanOrEqual(100)
          expect(["a", "b", "d/c"].filter(path => workspace.history(path) !== undefined).length).toBeLessThanOrEqual(2)
          const files = workspace.list("", 9)!.filter(({ type }) => type === "file")
          for (const { path } of files) expect(workspace.read(path)).toBeDefined()
        }
      }),
      { numRuns: runs }
    )
  })

  it("refuses what is bigger than it is, and what there is not", () => {
    const workspace = new Workspace({ files: 2, workspaceBytes: 10, iterations: 5 })
    expect(workspace.write("a", "12345678901", 0)).toBe(undefined)
    expect(workspace.history("a")).toBe(undefined)
    expect(workspace.write("a", "1234567890", 0)).toMatchObject({ iteration: 1, created: true })
    expect(workspace.write("a", "abc", 0)).toMatchObject({ iteration: 2, created: false })
    expect(workspace.history("a")).toHaveLength(1)
    expect(workspace.rename("b", "c", 0)).toBe(undefined)
    expect(workspace.rename("a", "a", 0)).toBe(undefined)
    expect(workspace.delete("b")).toBe(false)
  })
})

describe("faults", () => {
  it("add up, and the first of a sort stays", () => {
    const faults: ReadonlyArray<Fault> = [
      { kind: "latency", millis: 100 },
      { kind: "latency", millis: 100, jitterMillis: 50 },
      { kind: "status", status: 503 },
      { kind: "reset" },
      { kind: "drop", after: 1 },
      { kind: "drop", after: 2, code: 4000 },
      { kind: "drip", bytes: 1, everyMillis: 1 },
      { kind: "malformed" }
    ]
    expect(faults.reduce((plan, fault) => applyFault(plan, fault, 0.5), noFaults)).toMatchObject({
      latencyMillis: 225,
      instead: { kind: "status", status: 503 },
      drop: { after: 1, code: undefined },
      drip: { bytes: 1 },
      malformed: true
    })
  })

  it("close with the codes of RFC 6455 that may be sent", () => {
    const allowed = [1000, 1001, 1003, 1007, 1011, 1013, 1014, 3000, 4000, 4999]
    const forbidden = [0, 999, 1004, 1005, 1006, 1015, 2999, 5000, Number.NaN]
    expect(allowed.filter(isCloseCode)).toEqual(allowed)
    expect(forbidden.filter(isCloseCode)).toEqual([])
  })
})

it("words put together are the text, in no more pieces than asked for", () => {
  const text = fc.array(fc.oneof(fc.string({ unit: codePoint }), fc.constantFrom(" ", "\n", "  ", "a")), {
    maxLength: 50
  })
  fc.assert(
    fc.property(text, fc.integer({ min: 1, max: 20 }), (parts, most) => {
      const pieces = words(parts.join(""), most)
      expect(pieces.join("")).toBe(parts.join(""))
      expect(pieces.length).toBeLessThanOrEqual(most)
      for (const piece of pieces) expect(piece).not.toBe("")
    }),
    { numRuns: runs }
  )
})
