/** Polls of the change log. */
import { expect } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import {
  type Check,
  call,
  changes,
  end,
  expectError,
  follow,
  numbered,
  put,
  setAll,
  space,
  tenantOf
} from "./Fixture.ts"

/** Polling the change log. */
export const polls = (check: Check) => {
  check("the limit is 100 unless it is given, and above 1000 it is served as 1000", function* () {
    const namespace = space()
    const start = yield* end
    yield* setAll(namespace, numbered(1005))
    for (const [query, count] of [
      ["", 100],
      ["&limit=1", 1],
      ["&limit=1000", 1000],
      ["&limit=1001", 1000],
      ["&limit=9007199254740991", 1000]
    ] as const) {
      const page = yield* changes(`after=${start}${query}`)
      expect([query, page.changes.length, page.lastSeq]).toEqual([query, count, start + count])
      expect(page.changes.map(change => change.seq)).toEqual(
        Array.from({ length: count }, (_, index) => start + 1 + index)
      )
    }
    const all = yield* follow(start)
    expect(all).toHaveLength(1005)
    expect(all.map(change => change.timestamp)).toEqual(all.map(change => change.timestamp).sort((a, b) => a - b))
  })

  check("after is 0 unless it is given", function* () {
    yield* put(space(), "k", 1)
    const { changes: records } = yield* changes("limit=1")
    expect(records.map(record => record.seq)).toEqual([1])
    expect((yield* changes("after=0&limit=1")).changes).toEqual(records)
    expect((yield* call("GET", "/api/v1/changes?after=00&limit=01")).status).toBe(200)
  })

  check("0, negative, fractional and absurd numbers are refused by name", function* () {
    for (const [name, values] of [
      ["limit", ["0", "-1", "1.5", "", "x", "1e3", "0x1", "Infinity", "1%20"]],
      ["after", ["-1", "1.5", "", "-0"]],
      ["wait", ["-1", "61", "1.5", ""]]
    ] as const) {
      for (const value of values) {
        const answer = yield* call("GET", `/api/v1/changes?${name}=${value}`)
        expect([name, value, answer.status]).toEqual([name, value, 400])
        expectError(answer, 400, name)
      }
    }
    for (const route of ["stream", "ws"]) {
      for (const query of ["limit=0", "after=-1", "after=x", "tenant=a&tenant=b"]) {
        const answer = yield* call("GET", `/api/v1/changes/${route}?${query}`)
        expectError(answer, 400, query.split("=", 1)[0]!)
      }
    }
  })

  check("very large numbers are accepted", function* () {
    yield* put(space(), "k", 1)
    const last = yield* end
    for (const query of [
      "after=9007199254740993",
      "after=99999999999999999999",
      `after=${last}&limit=${"9".repeat(40)}`
    ]) {
      const answer = yield* call("GET", `/api/v1/changes?${query}`)
      expect([query, answer.status, answer.text]).toEqual([query, 200, `{"changes":[],"lastSeq":${last}}`])
    }
  })

  check("a tenant sees its own changes, and lastSeq goes past those of others", function* () {
    const [mine, other] = [space(), space()]
    const tenant = tenantOf(mine)
    const start = yield* end
    for (const namespace of [mine, other, `xtenant:${tenant}/y`]) yield* put(namespace, "k", 1)
    const page = yield* changes(`after=${start}&tenant=${tenant}`)
    expect(page.changes.map(({ namespace, tenantId }) => [namespace, tenantId])).toEqual([[mine, tenant]])
    expect(page.lastSeq).toBe(start + 3)
    const all = yield* changes(`after=${start}&tenant=`)
    expect(all.changes.map(change => change.tenantId)).toEqual([tenant, tenantOf(other), ""])
  })

  check("a tenant may have any name", function* () {
    for (const tenant of ["a%b", "a+b", "a&b=c", "é😀", "a b", "x:y", "__proto__"]) {
      const own = tenant + tenantOf(space())
      const start = yield* end
      yield* put(`tenant:${own}/x`, "k", 1)
      const page = yield* changes(`after=${start}&tenant=${encodeURIComponent(own)}`)
      expect(page.changes.map(change => change.tenantId)).toEqual([own])
    }
  })

  check("a prefix without a namespace and names that are none are refused", function* () {
    for (const route of ["", "/stream", "/ws"]) {
      for (const [query, named] of [
        ["prefix=a", "namespace"],
        ["prefix=", "namespace"],
        ["namespace=", "namespace is empty"],
        ["namespace=..", "namespace"],
        ["namespace=%00", "namespace"],
        [`namespace=${"n".repeat(513)}`, "512"],
        ["namespace=n&prefix=%00", "prefix"],
        ["namespace=a&namespace=b", "namespace"]
      ] as const) {
        expectError(yield* call("GET", `/api/v1/changes${route}?${query}`), 400, named)
      }
    }
  })

  check("a poll says whether there may be more, so that a loop does not end before the log does", function* () {
    const [mine, other] = [space(), space()]
    const start = yield* end
    for (const part of [1000, 1000, 1000]) yield* setAll(other, numbered(part))
    yield* put(mine, "a", 1)
    yield* put(mine, "b", 2)
    const last = yield* end
    const more = (answer: { readonly headers: Readonly<Record<string, unknown>> }) => answer.headers["kv-more"]
    for (const [query, found] of [
      ["", ["a", "b"]],
      ["&prefix=b", ["b"]],
      ["&prefix=c", []],
      ["&wait=1&prefix=b", ["b"]]
    ] as const) {
      const keys: Array<string> = []
      let isFirst = true
      for (let after = start, isBehind = true; isBehind; isFirst = false) {
        const part = isFirst || !query.startsWith("&wait") ? query : query.replace("&wait=1", "")
        const answer = yield* call("GET", `/api/v1/changes?after=${after}&namespace=${encodeURIComponent(mine)}${part}`)
        const page = JSON.parse(answer.text)
        keys.push(...page.changes.map(({ key }: { readonly key: string }) => key))
        expect([undefined, "true"]).toContain(more(answer))
        isBehind = more(answer) === "true"
        if (isBehind) expect(page.lastSeq).toBeGreaterThan(after)
        else expect(page.lastSeq).toBe(last)
        after = page.lastSeq
      }
      expect([query, keys]).toEqual([query, found])
    }
    for (const [query, expected] of [
      [`after=${start}&limit=2`, "true"],
      [`after=${start}&limit=1000&tenant=${tenantOf(mine)}`, undefined],
      [`after=${start}&limit=1&tenant=${tenantOf(mine)}`, "true"],
      [`after=${last}`, undefined],
      [`after=${last}&namespace=${encodeURIComponent(mine)}`, undefined],
      ["after=9007199254740991", undefined]
    ] as const) {
      expect([query, more(yield* call("GET", `/api/v1/changes?${query}`))]).toEqual([query, expected])
    }
  })

  check("a poll that waits is answered by the next write that concerns it", function* () {
    const [mine, other] = [space(), space()]
    const start = yield* end
    const waiting = yield* Effect.fork(changes(`after=${start}&wait=60`))
    const filtered = yield* Effect.fork(changes(`after=${start}&wait=60&tenant=${tenantOf(mine)}`))
    yield* put(other, "k", 1)
    const first = yield* Fiber.join(waiting)
    expect(first.changes.map(change => change.namespace)).toEqual([other])
    yield* put(mine, "k", 2)
    const second = yield* Fiber.join(filtered)
    expect(second.changes.map(change => [change.namespace, change.seq])).toEqual([[mine, start + 2]])
    expect(second.lastSeq).toBe(start + 2)
  })
}
