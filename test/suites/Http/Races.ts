import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { at, bodyOf, type Check, changesOf, end, head, put, space, wire } from "./Fixture.ts"

const range = (count: number): ReadonlyArray<number> => Array.from({ length: count }, (_, index) => index)

const all = { concurrency: "unbounded" } as const

/** What one connection sends at once, where the server takes its requests in turn. */
export const rows = (check: Check) => {
  check("requests of a connection are served in order, and its reads see its writes", function* () {
    const namespace = space()
    const target = at(namespace, "k")
    const connection = yield* wire
    const body = (text: string) => [`Content-Type: application/json`, `Content-Length: ${text.length}`] as const
    const set = (value: number) => {
      const text = `{"value":${value}}`
      return head(`PUT ${target}`, ...body(text)) + text
    }
    const operations = `{"operations":[{"op":"set","namespace":"${namespace}","key":"k","value":"batch"}]}`
    yield* connection.send(
      ...range(20).flatMap(value => [set(value), head(`GET ${target}`)]),
      head(`DELETE ${target}`),
      head(`GET ${target}`),
      head("POST /api/v1/batch", ...body(operations)) + operations,
      head(`GET ${target}`)
    )
    for (const value of range(20)) {
      for (const _ of ["PUT", "GET"]) {
        expect(bodyOf((yield* connection.answer)!)).toMatchObject({ value, version: value + 1 })
      }
    }
    expect((yield* connection.answer)!.text).toBe('{"deleted":true}')
    expect((yield* connection.answer)!.status).toBe(404)
    expect((yield* connection.answer)!.text).toBe('{"ok":true,"results":[{"version":22}]}')
    expect(bodyOf((yield* connection.answer)!)).toMatchObject({ value: "batch", version: 22 })
  })
}

/** Many clients at once. */
export const races = (check: Check) => {
  check("writes of clients that leave are done or not, and the service is unaffected", function* () {
    const namespace = space()
    const start = yield* end
    yield* Effect.forEach(
      range(60),
      index =>
        Effect.gen(function* () {
          const connection = yield* wire
          const text = `{"value":${index}}`
          const type = ["Content-Type: application/json", `Content-Length: ${text.length}`]
          yield* connection.send(head(`PUT ${at(namespace, `k${index}`)}`, ...type), text)
          if (index % 3 === 0) yield* connection.cut
          else if (index % 3 === 1) yield* connection.finish
          else expect((yield* connection.answer)!.status).toBe(200)
        }),
      all
    )
    yield* put(namespace, "last", true)
    const records = yield* changesOf(namespace, start)
    const keys = records.map(record => record.key)
    expect(new Set(keys).size).toBe(keys.length)
    for (const index of range(60).filter(index => index % 3 === 2)) expect(keys).toContain(`k${index}`)
    for (const { key, value, version } of records.filter(record => record.key !== "last")) {
      expect([key, version]).toEqual([`k${value}`, 1])
    }
  })
}
