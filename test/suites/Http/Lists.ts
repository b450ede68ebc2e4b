import { expect } from "@effect/vitest"
import { Effect } from "effect"
import type { Answer } from "./Client.ts"
import {
  bodyOf,
  type Check,
  call,
  end,
  expectError,
  headersOf,
  items,
  listAt,
  nextQuery,
  numbered,
  pages,
  put,
  segment,
  setAll,
  space
} from "./Fixture.ts"

const byBytes = (names: ReadonlyArray<string>): ReadonlyArray<string> =>
  [...names].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))

const keysOf = (answer: Answer): ReadonlyArray<string> => items(answer).map(entry => entry.key)

const names = ["a", "a/1", "a/2", "a/\uff5e", "a/😀", "b", "b&=+ /%", "\u{10ffff}"]

/** Lists, whole and page by page, and what they show, of which keys, and in which order. */
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

  check("a prefix is decoded from the query", function* () {
    const namespace = space()
    yield* setAll(namespace, ["a%b", "a b", "a+b", "a&b", "é", "\u{10ffff}z"])
    for (const prefix of ["a%", "a b", "a+", "a&", "é", "\u{10ffff}"]) {
      const query = `prefix=${segment(prefix)}`
      expect([prefix, items(yield* call("GET", `${listAt(namespace)}?${query}`)).length]).toEqual([prefix, 1])
      const paged = yield* pages(`${listAt(namespace)}?${query}&limit=1`)
      expect([prefix, paged.flatMap(keysOf)[0]?.startsWith(prefix)]).toEqual([prefix, true])
    }
    const formed = `${listAt(namespace)}?${new URLSearchParams({ prefix: "a " })}`
    expect(keysOf(yield* call("GET", formed))).toEqual(["a b"])
    expect(items(yield* call("GET", `${listAt(namespace)}?prefix=${"x".repeat(5000)}`))).toEqual([])
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

  check("an invalid cursor is refused", function* () {
    const namespace = space()
    yield* setAll(namespace, ["a", "b"])
    for (const cursor of ["!", "a", "YQ==", "Y Q", "YR", "_w", "é", "x".repeat(4000)]) {
      const answer = yield* call("GET", `${listAt(namespace)}?limit=1&cursor=${segment(cursor)}`)
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

  check("without a limit a namespace of any size is one answer, and a limit is up to 1000", function* () {
    const namespace = space()
    const names = numbered(1500)
    yield* setAll(namespace, names)
    const most = yield* call("GET", `${listAt(namespace)}?limit=1000`)
    expect([items(most).length, "link" in most.headers]).toEqual([1000, true])
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

  check("keysOnly leaves out the values, byte for byte", function* () {
    const namespace = space()
    const texts: Array<string> = []
    for (const key of names.slice(0, 3)) texts.push((yield* put(namespace, key, [',"version":', key])).text)
    const expected = texts.map(text => text.replace(/,"value":.*(?=,"version":)/, "")).join(",")
    const answer = yield* call("GET", `${listAt(namespace)}?keysOnly=1`)
    expect(answer.text).toBe(`{"items":[${expected}]}`)
    const all = yield* pages(`${listAt(namespace)}?keysOnly=1&limit=2`)
    expect(all.map(page => items(page).length)).toEqual([2, 1])
    expect(all.map(page => page.text.includes('"value"'))).toEqual([false, false])
    const off = yield* call("GET", `${listAt(namespace)}?keysOnly=0&reverse=0&count=0`)
    expect(off.text).toBe(`{"items":[${texts.join(",")}]}`)
    expect(headersOf(off)).not.toHaveProperty("kv-count")
  })

  check("start and end bound a list, reverse reverses it, and links have these options", function* () {
    const namespace = space()
    yield* setAll(namespace, names)
    const cases: ReadonlyArray<readonly [query: string, keys: ReadonlyArray<string>]> = [
      ["start=a/1&end=b", names.slice(1, 5)],
      [`start=${segment("b&=+ /%")}`, names.slice(6)],
      ["prefix=a/&start=a/2&end=c", names.slice(2, 5)],
      ["reverse=1&start=a/2&end=b&prefix=a", ["a/😀", "a/\uff5e", "a/2"]],
      [`start=a/${segment("\uff5e")}&end=a/${segment("😀")}`, ["a/\uff5e"]]
    ]
    for (const [query, keys] of cases) {
      expect([query, keysOf(yield* call("GET", `${listAt(namespace)}?${query}`))]).toEqual([query, keys])
      const paged = yield* pages(`${listAt(namespace)}?${query}&limit=1`)
      expect([query, paged.flatMap(keysOf)]).toEqual([query, keys])
    }
  })

  check("count is the number of entries of a list, on every page", function* () {
    const namespace = space()
    yield* setAll(namespace, names)
    const countOf = (query: string, method = "GET") =>
      Effect.map(call(method, `${listAt(namespace)}?${query}`), ({ headers }) => headers["kv-count"])
    expect(yield* countOf("count=1")).toBe("8")
    expect(yield* countOf("count=1", "HEAD")).toBe("8")
    expect(yield* countOf("count=1&limit=1", "HEAD")).toBe("8")
    expect(yield* countOf("count=1&limit=1&prefix=a/&keysOnly=1")).toBe("4")
    expect(yield* countOf("count=1&limit=1&reverse=1&start=a/1&end=b")).toBe("4")
    expect(yield* countOf("count=1&prefix=none")).toBe("0")
    expect(yield* countOf("limit=1")).toBeUndefined()
    const next = nextQuery(yield* call("GET", `${listAt(namespace)}?count=1&limit=2&prefix=a`))
    expect([...next.keys()]).toEqual(["prefix", "limit", "cursor"])
    expect(yield* countOf(`${next}&count=1`)).toBe("5")
  })

  check("a list that is streamed can be turned round, counted and without values", function* () {
    const namespace = space()
    const many = numbered(1100)
    yield* setAll(namespace, many)
    const answer = yield* call("GET", `${listAt(namespace)}?reverse=1&count=1&keysOnly=1&start=k00001`)
    expect(keysOf(answer)).toEqual(many.slice(1).toReversed())
    expect(answer.headers["kv-count"]).toBe("1099")
    expect(answer.text).not.toContain('"value"')
  })

  check("a cursor goes with its own list", function* () {
    const namespace = space()
    const other = space()
    for (const each of [namespace, other]) yield* setAll(each, names)
    const query = "prefix=a&start=a&end=b&reverse=1&limit=2"
    const cursor = nextQuery(yield* call("GET", `${listAt(namespace)}?${query}`)).get("cursor")!
    const follow = (query: string, space = namespace) =>
      call("GET", `${listAt(space)}?${query}&cursor=${segment(cursor)}`)
    // What is shown of the entries, and how many, may change from page to page.
    expect(keysOf(yield* follow("prefix=a&start=a&end=b&reverse=1&limit=1&keysOnly=1"))).toEqual(["a/2"])
    expect(keysOf(yield* follow("prefix=a&start=a&end=b&reverse=1"))).toEqual(["a/2", "a/1", "a"])
    for (const changed of [
      "prefix=a&start=a&end=b",
      "prefix=a&start=a&end=b&reverse=0",
      "prefix=b&start=a&end=b&reverse=1",
      "start=a&end=b&reverse=1",
      "prefix=a&start=&end=b&reverse=1",
      "prefix=a&start=a&end=c&reverse=1",
      "prefix=a&start=a&reverse=1"
    ]) {
      expectError(yield* follow(changed), 400, "cursor", "prefix", "start", "end", "reverse")
    }
    expectError(yield* follow(query, other), 400, "cursor", "namespace")
  })

  check("a malformed parameter is 400, and named", function* () {
    const namespace = space()
    for (const name of ["keysOnly", "count", "reverse"]) {
      for (const value of ["", "2", "true"]) {
        expectError(yield* call("GET", `${listAt(namespace)}?${name}=${value}`), 400, name, "0 or 1")
      }
    }
    for (const name of ["start", "end", "prefix"]) {
      expectError(yield* call("GET", `${listAt(namespace)}?${name}=a%00`), 400, name, "U+0000")
    }
    expect(bodyOf(yield* call("GET", `${listAt(namespace)}?start=${"x".repeat(5000)}`))).toEqual({ items: [] })
  })
}
