import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { times } from "../../Scale.ts"
import type { Answer } from "./Client.ts"
import {
  batch,
  type Check,
  call,
  type EntryBody,
  end,
  expectError,
  follow,
  headersOf,
  items,
  listAt,
  put,
  remove,
  Site,
  space
} from "./Fixture.ts"

const byBytes = (names: ReadonlyArray<string>): ReadonlyArray<string> =>
  [...names].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))

const keysOf = (answer: Answer): ReadonlyArray<string> => items(answer).map(entry => entry.key)

const setAll = (namespace: string, names: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    for (let start = 0; start < names.length; start += 1000) {
      const part = names.slice(start, start + 1000)
      const answer = yield* batch(part.map((key, index) => ({ op: "set", namespace, key, value: start + index })))
      expect(answer.status).toBe(200)
    }
  })

/** Where the next page is, if there is one, found as an HTTP client finds it: relative to the page at hand. */
const nextOf = (answer: Answer, base: string, target: string): string | undefined => {
  const { link } = answer.headers
  if (link === undefined) return undefined
  const found = /^<([^>]*)>; rel="next"$/.exec(String(link))
  expect(found).not.toBeNull()
  const url = new URL(found![1]!, new URL(target, base))
  expect(url.origin).toBe(new URL(base).origin)
  return url.pathname + url.search
}

/** All pages from one on. */
const pages = (first: string) =>
  Effect.gen(function* () {
    const { url } = yield* Site
    const all: Array<Answer> = []
    for (let target: string | undefined = first; target !== undefined; ) {
      const answer: Answer = yield* call("GET", target)
      expect([target, answer.status]).toEqual([target, 200])
      all.push(answer)
      target = nextOf(answer, url, target)
    }
    return all
  })

const numbered = (count: number): ReadonlyArray<string> =>
  Array.from({ length: count }, (_, index) => `k${String(index).padStart(5, "0")}`)

/** Lists, whole and page by page. */
export const lists = (check: Check) => {
  check("a list shows whole entries, byte for byte those that single reads show", function* () {
    const namespace = space()
    const texts: Array<string> = []
    for (const key of ["a", "b", "c"]) texts.push((yield* put(namespace, key, { [key]: key })).text)
    const answer = yield* call("GET", listAt(namespace))
    expect(answer.text).toBe(`{"items":[${texts.join(",")}]}`)
    expect(headersOf(answer)).toEqual({
      "content-type": "application/json",
      "kv-last-seq": String(yield* end),
      "kv-epoch": expect.any(String)
    })
  })

  check("items come in byte order of the UTF-8 key", function* () {
    const namespace = space()
    const names = [
      "😀",
      "\uff5e",
      "\u{10ffff}",
      "\uffff",
      "\ue000",
      "é",
      "e\u0301",
      "z",
      "a",
      "a/b",
      "a!",
      "A",
      "10",
      "9"
    ]
    yield* setAll(namespace, names)
    expect(keysOf(yield* call("GET", listAt(namespace)))).toEqual(byBytes(names))
    for (const limit of [1, 2, 13, 14, 15]) {
      const all = yield* pages(`${listAt(namespace)}?limit=${limit}`)
      expect(all.flatMap(keysOf)).toEqual(byBytes(names))
      expect(all).toHaveLength(Math.ceil(names.length / limit))
    }
  })

  check("a prefix is literal, whatever it holds", function* () {
    const namespace = space()
    const names = [
      "a%b",
      "a_b",
      "a*b",
      "a?b",
      "a[b]",
      "axb",
      "A%b",
      "a\\b",
      "a",
      "aa",
      "a b",
      "a+b",
      "a&b",
      "a/b",
      "é",
      "日本",
      "😀x",
      "\u{10ffff}\u{10ffff}z"
    ]
    yield* setAll(namespace, names)
    for (const prefix of [
      "",
      "a",
      "a%",
      "a_",
      "a*",
      "a?",
      "a[",
      "a\\",
      "a b",
      "a+",
      "a&",
      "a/",
      "A",
      "é",
      "日",
      "😀",
      "\u{10ffff}",
      "\u{10ffff}\u{10ffff}",
      "%",
      "_",
      "*",
      "b",
      "a%bc",
      "x".repeat(5000)
    ]) {
      const expected = byBytes(names.filter(name => name.startsWith(prefix)))
      const query = `prefix=${encodeURIComponent(prefix)}`
      expect([prefix, keysOf(yield* call("GET", `${listAt(namespace)}?${query}`))]).toEqual([prefix, expected])
      const paged = yield* pages(`${listAt(namespace)}?${query}&limit=1`)
      expect([prefix, paged.flatMap(keysOf)]).toEqual([prefix, expected])
    }
    const formed = `${listAt(namespace)}?${new URLSearchParams({ prefix: "a " })}`
    expect(keysOf(yield* call("GET", formed))).toEqual(["a b"])
  })

  check("a Link leads from page to page to the end, with the prefix and the limit", function* () {
    const namespace = `${space()} /%?#é`
    const names = [...numbered(25), "other", "z%&+ é"]
    yield* setAll(namespace, names)
    const all = yield* pages(`${listAt(namespace)}?prefix=k&limit=10`)
    expect(all.map(page => items(page).length)).toEqual([10, 10, 5])
    expect(all.flatMap(keysOf)).toEqual(numbered(25))
    expect(all.map(page => "link" in page.headers)).toEqual([true, true, false])
    for (const page of all) expect(page.headers["kv-last-seq"]).toBe(all[0]!.headers["kv-last-seq"])
    const exact = yield* pages(`${listAt(namespace)}?prefix=k&limit=25`)
    expect(exact).toHaveLength(1)
    expect((yield* pages(`${listAt(namespace)}?limit=1`)).flatMap(keysOf)).toEqual(byBytes(names))
  })

  check("pages continue at their position while entries are added and removed", function* () {
    const { url } = yield* Site
    const namespace = space()
    yield* setAll(namespace, ["a", "c", "e", "g"])
    const target = `${listAt(namespace)}?limit=2`
    const first = yield* call("GET", target)
    expect(keysOf(first)).toEqual(["a", "c"])
    yield* remove(namespace, "c")
    yield* setAll(namespace, ["b", "d", "f"])
    const rest = yield* pages(nextOf(first, url, target)!)
    expect(rest.flatMap(keysOf)).toEqual(["d", "e", "f", "g"])
  })

  check("limit may be 1 to 1000", function* () {
    const namespace = space()
    yield* setAll(namespace, numbered(1001))
    const most = yield* call("GET", `${listAt(namespace)}?limit=1000`)
    expect([items(most).length, "link" in most.headers]).toEqual([1000, true])
    expect(items(yield* call("GET", `${listAt(namespace)}?limit=1`))).toHaveLength(1)
    for (const limit of ["0", "1001", "-1", "x"]) {
      expectError(yield* call("GET", `${listAt(namespace)}?limit=${limit}`), 400, "limit", "1", "1000", limit)
    }
  })

  check("an invalid cursor is refused", function* () {
    const namespace = space()
    yield* setAll(namespace, ["a", "b"])
    for (const cursor of ["!", "a", "YQ==", "Y Q", "Y%20Q", "%ff%ff", "YR", "_w", "gA", "é", "x".repeat(4000)]) {
      const target = `${listAt(namespace)}?limit=1&cursor=${cursor === "%ff%ff" ? cursor : encodeURIComponent(cursor)}`
      const answer = yield* call("GET", target)
      expect([cursor, answer.status]).toEqual([cursor, 400])
    }
    const bare = Buffer.from("a").toString("base64url")
    expectError(yield* call("GET", `${listAt(namespace)}?cursor=${bare}`), 400, "cursor")
    const { link } = (yield* call("GET", `${listAt(namespace)}?limit=1`)).headers
    const cursor = /cursor=([^&>]*)/.exec(String(link))![1]!
    expect(keysOf(yield* call("GET", `${listAt(namespace)}?cursor=${cursor}`))).toEqual(["b"])
    const altered = `${cursor.startsWith("x") ? "y" : "x"}${cursor.slice(1)}`
    for (const other of [altered, `${cursor}!`, cursor.slice(0, 8), `${cursor.slice(0, 9)}_w`]) {
      expectError(yield* call("GET", `${listAt(namespace)}?cursor=${other}`), 400, "cursor")
    }
  })

  check("without a limit a namespace of thousands is one answer", function* () {
    const namespace = space()
    const names = numbered(3500)
    yield* setAll(namespace, names)
    const answer = yield* call("GET", listAt(namespace))
    expect(answer.status).toBe(200)
    expect(headersOf(answer)).toEqual({
      "content-type": "application/json",
      "kv-last-seq": expect.any(String),
      "kv-epoch": expect.any(String),
      vary: "Accept-Encoding"
    })
    expect(items(answer).map(({ key, value }) => [key, value])).toEqual(names.map((key, index) => [key, index]))
    const prefixed = yield* call("GET", `${listAt(namespace)}?prefix=k00`)
    expect(keysOf(prefixed)).toEqual(numbered(1000))
  })

  check("pages of large values end early and have a next page", function* () {
    const namespace = space()
    const large = "x".repeat(1024 * 1024 - 2)
    for (let index = 0; index < 6; index++) yield* put(namespace, `k${index}`, large)
    const all = yield* pages(`${listAt(namespace)}?limit=1000`)
    expect(all.length).toBeGreaterThan(1)
    expect(all.flatMap(keysOf)).toEqual(["k0", "k1", "k2", "k3", "k4", "k5"])
    expect(items(yield* call("GET", listAt(namespace)))).toHaveLength(6)
  })

  check("list, then follow from Kv-Last-Seq: nothing is missed or repeated", function* () {
    const namespace = space()
    const writer = Effect.forEach(
      numbered(times(300)),
      (key, index) =>
        index % 5 === 4 ? remove(namespace, numbered(times(300))[index - 2]!) : put(namespace, key, index),
      { concurrency: 8, discard: true }
    )
    const views = Effect.replicateEffect(call("GET", listAt(namespace)), times(20))
    const [, lists] = yield* Effect.all([writer, views], { concurrency: "unbounded" })
    const last = items(yield* call("GET", listAt(namespace)))
    const final = new Map(last.map(entry => [entry.key, entry.version]))
    for (const list of lists) {
      const seen = new Map(items(list).map((entry: EntryBody) => [entry.key, entry.version]))
      for (const change of yield* follow(Number(list.headers["kv-last-seq"]))) {
        if (change.namespace !== namespace) continue
        expect(change.version).toBe((seen.get(change.key) ?? change.version - 1) + 1)
        if (change.op === "set") seen.set(change.key, change.version)
        else seen.delete(change.key)
      }
      expect(new Map([...seen].sort())).toEqual(new Map([...final].sort()))
    }
  })
}
