import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { batch, bodyOf, type Check, call, end, expectError, put, remove, segment, space, telling } from "./Fixture.ts"

interface Namespaces {
  readonly namespaces: ReadonlyArray<{ readonly namespace: string; readonly count: number }>
}

const target = "/api/v1/kv"

/** The list of namespaces. */
export const namespaces = (check: Check) => {
  check("namespaces are listed with the numbers of their entries", () =>
    Effect.gen(function* () {
      const own = space()
      const names = [own, `${own}/a`, `${own}/b "\\`, `${own}/é`]
      const operations = names.flatMap((namespace, index) =>
        Array.from({ length: index + 1 }, (_, key) => ({ op: "set", namespace, key: `k${key}`, value: 1 }))
      )
      expect((yield* batch(operations)).status).toBe(200)
      const answer = yield* call("GET", `${target}?prefix=${segment(own)}`)
      const expected = names.map((namespace, index) => ({ namespace, count: index + 1 }))
      expect(answer.text).toBe(JSON.stringify({ namespaces: expected }))
      expect(telling(answer)).toEqual({
        "content-type": "application/json",
        "kv-last-seq": String(yield* end),
        "kv-epoch": expect.any(String)
      })
      yield* remove(own, "k0")
      yield* put(`${own}/a`, "k0", 2)
      const rest = bodyOf<Namespaces>(yield* call("GET", `${target}?prefix=${segment(own)}`))
      expect(rest.namespaces).toEqual([{ namespace: `${own}/a`, count: 2 }, ...expected.slice(2)])
      expect(bodyOf(yield* call("GET", `${target}?prefix=none`))).toEqual({ namespaces: [] })
      const all = bodyOf<Namespaces>(yield* call("GET", target))
      expect(all.namespaces).toEqual(expect.arrayContaining([...rest.namespaces]))
    })
  )

  check("a Link leads from page to page, with the prefix and the limit; a cursor goes with its prefix", () =>
    Effect.gen(function* () {
      const own = `${space()} /%?#é`
      const names = Array.from({ length: 5 }, (_, index) => `${own}/${index}`)
      yield* batch(names.map(namespace => ({ op: "set", namespace, key: "k", value: 1 })))
      const pages: Array<Namespaces> = []
      const links: Array<string> = []
      for (let next: string | undefined = `${target}?prefix=${segment(own)}&limit=2`; next !== undefined; ) {
        const answer: Effect.Effect.Success<ReturnType<typeof call>> = yield* call("GET", next)
        pages.push(bodyOf(answer))
        next = /^<([^>]*)>; rel="next"$/.exec(String(answer.headers.link))?.[1]
        if (next !== undefined) links.push(next)
      }
      expect(pages.map(page => page.namespaces.map(({ namespace }) => namespace))).toEqual([
        names.slice(0, 2),
        names.slice(2, 4),
        names.slice(4)
      ])
      const cursor = new URL(links[0]!, "http://localhost").searchParams.get("cursor")
      expectError(yield* call("GET", `${target}?prefix=tenant&cursor=${cursor}`), 400, "cursor", "prefix")
      expectError(yield* call("GET", `${target}?cursor=${cursor}`), 400, "cursor", "prefix")
    })
  )

  check("a malformed parameter is 400, and named", () =>
    Effect.gen(function* () {
      for (const limit of ["0", "1001", "x"]) {
        expectError(yield* call("GET", `${target}?limit=${limit}`), 400, "limit", "1", "1000", limit)
      }
      expectError(yield* call("GET", `${target}?prefix=a%00`), 400, "prefix", "U+0000")
      expectError(yield* call("GET", `${target}?cursor=abc`), 400, "cursor")
      expectError(yield* call("POST", target, { json: {} }), 405, "GET")
      // An empty namespace is another resource.
      expectError(yield* call("GET", `${target}/`), 400, "namespace")
    })
  )
}
