import { expect } from "@effect/vitest"
import { batch, bodyOf, type Check, end, expectError, follow, get, headersOf, put, space } from "./Fixture.ts"

const set = (namespace: string, key: string, value: unknown) => ({ op: "set", namespace, key, value })
const del = (namespace: string, key: string) => ({ op: "delete", namespace, key })

/** Several operations as one. */
export const batches = (check: Check) => {
  check("the results are in order, and the records are consecutive", function* () {
    const [one, two] = [space(), space()]
    yield* put(one, "old", 0)
    const start = yield* end
    const answer = yield* batch(
      [
        set(one, "a", 1),
        set(two, "a", 2),
        del(one, "old"),
        del(one, "none"),
        set(one, "a", 3),
        del(one, "a"),
        set(one, "a", 4),
        set(one, "old", 5)
      ],
      {}
    )
    expect([answer.status, headersOf(answer)]).toEqual([200, { "content-type": "application/json" }])
    expect(answer.text).toBe(
      '{"ok":true,"results":[{"version":1},{"version":1},{"deleted":true},{"deleted":false},{"version":2},' +
        '{"deleted":true},{"version":4},{"version":3}]}'
    )
    const records = yield* follow(start)
    expect(
      records.map(({ seq, op, namespace, key, value, version }) => [seq, op, namespace, key, value, version])
    ).toEqual([
      [start + 1, "set", one, "a", 1, 1],
      [start + 2, "set", two, "a", 2, 1],
      [start + 3, "delete", one, "old", null, 2],
      [start + 4, "set", one, "a", 3, 2],
      [start + 5, "delete", one, "a", null, 3],
      [start + 6, "set", one, "a", 4, 4],
      [start + 7, "set", one, "old", 5, 3]
    ])
    expect(new Set(records.map(record => record.timestamp)).size).toBe(1)
  })

  check("an empty batch succeeds, and changes nothing", function* () {
    const start = yield* end
    const answer = yield* batch([])
    expect([answer.status, answer.text]).toEqual([200, '{"ok":true,"results":[]}'])
    expect(yield* end).toBe(start)
  })

  check("one refused operation refuses the batch", function* () {
    const namespace = space()
    const start = yield* end
    const good = set(namespace, "a", 1)
    const refused: ReadonlyArray<readonly [unknown, number]> = [
      [{ ...good, key: "x".repeat(1025) }, 400],
      [{ ...good, namespace: "" }, 400],
      [{ ...good, op: "move" }, 400],
      [{ ...good, value: "x".repeat(1024 * 1024) }, 413],
      [{ ...good, ifVersion: 7 }, 412]
    ]
    for (const [bad, status] of refused) {
      const answer = yield* batch([good, bad, good])
      expect([bad, answer.status]).toEqual([bad, status])
      expectError(answer, status, "operations[1]")
    }
    expect(yield* end).toBe(start)
    expectError(yield* get(namespace, "a"), 404)
  })

  check("a batch may have 1,000 operations and not one more", function* () {
    const namespace = space()
    const start = yield* end
    const operations = Array.from({ length: 1000 }, (_, index) => set(namespace, `k${index % 500}`, index))
    expectError(yield* batch([...operations, operations[0]]), 413, "operations", "more than 1000")
    expectError(yield* batch(Array.from({ length: 20_000 }, () => 1)), 413, "operations", "more than 1000")
    expect(yield* end).toBe(start)
    const answer = yield* batch(operations)
    const { results } = bodyOf<{ readonly results: ReadonlyArray<{ readonly version: number }> }>(answer)
    expect(results.map(result => result.version)).toEqual(operations.map((_, index) => (index < 500 ? 1 : 2)))
    expect(yield* end).toBe(start + 1000)
  })
}
