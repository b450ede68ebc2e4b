import { expect } from "@effect/vitest"
import { Effect } from "effect"
import type { Answer } from "./Client.ts"
import {
  batch,
  bodyOf,
  type Check,
  call,
  expectError,
  headersOf,
  items,
  listAt,
  put,
  segment,
  space
} from "./Fixture.ts"

const keysOf = (answer: Answer): ReadonlyArray<string> => items(answer).map(entry => entry.key)

const setAll = (namespace: string, names: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    for (let start = 0; start < names.length; start += 1000) {
      const part = names.slice(start, start + 1000)
      expect((yield* batch(part.map(key => ({ op: "set", namespace, key, value: key })))).status).toBe(200)
    }
  })

/** The query of the next page, if there is one. */
const nextOf = (answer: Answer): URLSearchParams | undefined => {
  const target = /^<([^>]*)>; rel="next"$/.exec(String(answer.headers.link))?.[1]
  return target === undefined ? undefined : new URL(target, "http://localhost").searchParams
}

/** All pages of a list. */
const pages = (namespace: string, query: string) =>
  Effect.gen(function* () {
    const all: Array<Answer> = []
    for (let next: string | undefined = query; next !== undefined; ) {
      const answer: Answer = yield* call("GET", `${listAt(namespace)}?${next}`)
      expect([next, answer.status]).toEqual([next, 200])
      all.push(answer)
      next = nextOf(answer)?.toString()
    }
    return all
  })

const names = ["a", "a/1", "a/2", "a/\uff5e", "a/😀", "b", "b&=+ /%", "\u{10ffff}"]

/** What a list shows, of which keys, and in which order. */
export const listOptions = (check: Check) => {
  check("keysOnly leaves out the values, byte for byte", function* () {
    const namespace = space()
    const texts: Array<string> = []
    for (const key of names.slice(0, 3)) texts.push((yield* put(namespace, key, [',"version":', key])).text)
    const expected = texts.map(text => text.replace(/,"value":.*(?=,"version":)/, "")).join(",")
    const answer = yield* call("GET", `${listAt(namespace)}?keysOnly=1`)
    expect(answer.text).toBe(`{"items":[${expected}]}`)
    const all = yield* pages(namespace, "keysOnly=1&limit=2")
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
      ["start=a/1", names.slice(1)],
      ["start=a/1&end=b", names.slice(1, 5)],
      ["start=&end=", names],
      ["end=a", []],
      ["start=b&end=a", []],
      [`start=${segment("b&=+ /%")}`, names.slice(6)],
      ["prefix=a/&start=a/2&end=c", names.slice(2, 5)],
      ["prefix=a/&end=a/2", ["a/1"]],
      ["reverse=1", names.toReversed()],
      ["reverse=1&start=a/2&end=b&prefix=a", ["a/😀", "a/\uff5e", "a/2"]],
      [`start=a/${segment("\uff5e")}&end=a/${segment("😀")}`, ["a/\uff5e"]]
    ]
    for (const [query, keys] of cases) {
      expect([query, keysOf(yield* call("GET", `${listAt(namespace)}?${query}`))]).toEqual([query, keys])
      const paged = yield* pages(namespace, `${query}&limit=1`)
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
    const next = nextOf(yield* call("GET", `${listAt(namespace)}?count=1&limit=2&prefix=a`))!
    expect([...next.keys()]).toEqual(["prefix", "limit", "cursor"])
    expect(yield* countOf(`${next}&count=1`)).toBe("5")
  })

  check("a list that is streamed can be turned round, counted and without values", function* () {
    const namespace = space()
    const many = Array.from({ length: 1100 }, (_, index) => `k${String(index).padStart(4, "0")}`)
    yield* setAll(namespace, many)
    const answer = yield* call("GET", `${listAt(namespace)}?reverse=1&count=1&keysOnly=1&start=k0001`)
    expect(keysOf(answer)).toEqual(many.slice(1).toReversed())
    expect(answer.headers["kv-count"]).toBe("1099")
    expect(answer.text).not.toContain('"value"')
  })

  check("a cursor goes with its own list", function* () {
    const namespace = space()
    const other = space()
    for (const each of [namespace, other]) yield* setAll(each, names)
    const query = "prefix=a&start=a&end=b&reverse=1&limit=2"
    const cursor = nextOf(yield* call("GET", `${listAt(namespace)}?${query}`))!.get("cursor")!
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
