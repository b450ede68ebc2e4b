import { expect } from "@effect/vitest"
import { Effect } from "effect"
import {
  batch,
  bodyOf,
  type Check,
  call,
  end,
  expectError,
  headersOf,
  nextQuery,
  pages,
  put,
  remove,
  segment,
  space
} from "./Fixture.ts"

interface Namespaces {
  readonly namespaces: ReadonlyArray<{ readonly namespace: string; readonly count: number }>
}

interface Tenants {
  readonly tenants: ReadonlyArray<{ readonly tenant: string; readonly namespaces: number; readonly entries: number }>
}

const target = "/api/v1/kv"
const tenantsTarget = "/api/v1/tenants"

/** A name for a tenant that has a unique beginning. */
const freeName = () => space().replaceAll(/[/:]/g, "-")

/** The lists of namespaces and of tenants. */
export const namespaces = (check: Check) => {
  check("namespaces are listed with the numbers of their entries", function* () {
    const own = space()
    const names = [own, `${own}/a`, `${own}/b "\\`, `${own}/é`]
    const operations = names.flatMap((namespace, index) =>
      Array.from({ length: index + 1 }, (_, key) => ({ op: "set", namespace, key: `k${key}`, value: 1 }))
    )
    expect((yield* batch(operations)).status).toBe(200)
    const answer = yield* call("GET", `${target}?prefix=${segment(own)}`)
    const expected = names.map((namespace, index) => ({ namespace, count: index + 1 }))
    expect(answer.text).toBe(JSON.stringify({ namespaces: expected }))
    expect(headersOf(answer)).toEqual({
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

  check("a Link leads from page to page, with the prefix and the limit; a cursor goes with its prefix", function* () {
    const own = `${space()} /%?#é`
    const names = Array.from({ length: 5 }, (_, index) => `${own}/${index}`)
    yield* batch(names.map(namespace => ({ op: "set", namespace, key: "k", value: 1 })))
    const all = yield* pages(`${target}?prefix=${segment(own)}&limit=2`)
    expect(all.map(page => bodyOf<Namespaces>(page).namespaces.map(({ namespace }) => namespace))).toEqual([
      names.slice(0, 2),
      names.slice(2, 4),
      names.slice(4)
    ])
    const cursor = nextQuery(all[0]!).get("cursor")
    expectError(yield* call("GET", `${target}?prefix=tenant&cursor=${cursor}`), 400, "cursor", "prefix")
    expectError(yield* call("GET", `${target}?cursor=${cursor}`), 400, "cursor", "prefix")
  })

  check("the namespaces of a tenant are listed, and those of none", function* () {
    const own = freeName()
    const names = [`tenant:${own}`, `tenant:${own}/a`, `tenant:${own}-b/a`, `tenant:/${own}`, own]
    yield* batch(names.map(namespace => ({ op: "set", namespace, key: "k", value: 1 })))
    const listed = (query: string) =>
      Effect.map(call("GET", `${target}?${query}`), answer =>
        bodyOf<Namespaces>(answer).namespaces.map(({ namespace }) => namespace)
      )
    expect(yield* listed(`tenant=${segment(own)}`)).toEqual(names.slice(0, 2))
    expect(yield* listed(`tenant=${segment(own)}&prefix=${segment(`tenant:${own}/`)}`)).toEqual(names.slice(1, 2))
    const contradiction = `${target}?tenant=${segment(own)}&withoutTenant=1`
    expectError(yield* call("GET", contradiction), 400, "tenant and withoutTenant exclude each other")
    expect(yield* listed(`tenant=${segment(own)}&withoutTenant=0`)).toEqual(names.slice(0, 2))
    expect(yield* listed(`tenant=&withoutTenant=1&prefix=${segment(own)}`)).toEqual([own])
    expect(yield* listed(`tenant=&prefix=${segment(own)}`)).toEqual([own])
    const without = yield* listed("withoutTenant=1")
    expect(without).toEqual(expect.arrayContaining([`tenant:/${own}`, own]))
    expect(without).not.toEqual(expect.arrayContaining([names[1]]))
    const first = yield* call("GET", `${target}?tenant=${segment(own)}&limit=1`)
    const next = /^<([^>]*)>; rel="next"$/.exec(String(first.headers.link))![1]!
    expect(bodyOf<Namespaces>(yield* call("GET", next)).namespaces).toEqual([{ namespace: names[1], count: 1 }])
    const other = next.replace(/tenant=[^&]*&/, "")
    expectError(yield* call("GET", other), 400, "cursor", "prefix, tenant and withoutTenant")
    expectError(yield* call("GET", `${other}&withoutTenant=1`), 400, "cursor")
    const ofNone = yield* call("GET", `${target}?withoutTenant=1&limit=1`)
    expect(ofNone.headers.link).toMatch(/^<\/api\/v1\/kv\?withoutTenant=1&limit=1&cursor=[^&>]+>; rel="next"$/)
    expectError(yield* call("GET", `${target}?withoutTenant=2`), 400, "withoutTenant")
    expectError(yield* call("GET", `${target}?tenant=a%00`), 400, "tenant", "U+0000")
  })

  check("tenants are listed with the numbers of their namespaces and entries, page by page", function* () {
    const own = freeName()
    const names = [`tenant:${own}`, `tenant:${own}/a`, `tenant:${own}-b"\\/a`, `tenant:${own}é/a`]
    const operations = names.flatMap((namespace, index) =>
      Array.from({ length: index + 1 }, (_, key) => ({ op: "set", namespace, key: `k${key}`, value: 1 }))
    )
    expect((yield* batch([...operations, { op: "set", namespace: own, key: "k", value: 1 }])).status).toBe(200)
    const expected = [
      { tenant: own, namespaces: 2, entries: 3 },
      { tenant: `${own}-b"\\`, namespaces: 1, entries: 3 },
      { tenant: `${own}é`, namespaces: 1, entries: 4 }
    ]
    const answer = yield* call("GET", `${tenantsTarget}?prefix=${segment(own)}`)
    expect(answer.text).toBe(JSON.stringify({ tenants: expected }))
    expect(headersOf(answer)).toEqual({
      "content-type": "application/json",
      "kv-last-seq": String(yield* end),
      "kv-epoch": expect.any(String)
    })
    const tenantPages = yield* pages(`${tenantsTarget}?limit=1`)
    const all = tenantPages.flatMap(page => bodyOf<Tenants>(page).tenants)
    // Namespaces of no tenant come first, and once.
    expect(all.map(({ tenant }) => tenant).lastIndexOf("")).toBe(0)
    expect(all).toEqual(expect.arrayContaining(expected))
    expect(all).toEqual(bodyOf<Tenants>(yield* call("GET", tenantsTarget)).tenants)
    const cursor = nextQuery(tenantPages[0]!).get("cursor")
    expectError(yield* call("GET", `${tenantsTarget}?prefix=a&cursor=${cursor}`), 400, "cursor", "prefix")
  })

  check("a malformed parameter is 400, and named", function* () {
    for (const path of [target, tenantsTarget]) {
      for (const limit of ["0", "1001", "x"]) {
        expectError(yield* call("GET", `${path}?limit=${limit}`), 400, "limit", "1", "1000", limit)
      }
      expectError(yield* call("GET", `${path}?prefix=a%00`), 400, "prefix", "U+0000")
      expectError(yield* call("GET", `${path}?cursor=abc`), 400, "cursor")
      expectError(yield* call("POST", path, { json: {} }), 405, "GET")
    }
    // An empty namespace is another resource.
    expectError(yield* call("GET", `${target}/`), 400, "namespace")
  })
}
