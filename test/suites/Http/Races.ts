import { expect } from "@effect/vitest"
import { Deferred, Effect } from "effect"
import { times } from "../../Scale.ts"
import type { Answer } from "./Client.ts"
import {
  at,
  batch,
  bodyOf,
  type ChangeBody,
  type Check,
  changes,
  changesOf,
  type EntryBody,
  end,
  get,
  head,
  put,
  remove,
  space,
  wire
} from "./Fixture.ts"

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

/**
 * The answers to writes, all of which were sent at once. On a machine that is slow enough a write is answered with 503,
 * and done or not.
 */
const succeeded = (answers: ReadonlyArray<Answer>): ReadonlyArray<Answer> => {
  for (const { status, text } of answers) expect([200, 503], text).toContain(status)
  return answers.filter(({ status }) => status === 200)
}

/** Many clients at once. */
export const races = (check: Check) => {
  check("200 writers of one key get consecutive versions", function* () {
    const namespace = space()
    const start = yield* end
    const answers = succeeded(yield* Effect.forEach(range(200), value => put(namespace, "k", value), all))
    // All that were sent before are decided when a later one is done.
    yield* Effect.repeat(put(space(), "later", 0), { until: ({ status }) => status === 200 })
    const records = yield* changesOf(namespace, start)
    expect(records.map(({ version }) => version)).toEqual(records.map((_, index) => index + 1))
    expect(new Set(records.map(({ value }) => value)).size).toBe(records.length)
    for (const { value, version } of answers.map(answer => bodyOf<EntryBody>(answer))) {
      expect([version, records[version - 1]?.value]).toEqual([version, value])
    }
    expect(records.length).toBeGreaterThanOrEqual(answers.length)
    const last = records.at(-1)!
    expect(bodyOf(yield* get(namespace, "k"))).toMatchObject({ version: last.version, value: last.value })
  })

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

  check("of many that create one key, exactly one succeeds", function* () {
    const namespace = space()
    const create = (value: number) => put(namespace, "k", value, { headers: { "if-none-match": "*" } })
    const answers = yield* Effect.forEach(range(50), create, all)
    expect(answers.map(answer => answer.status).sort()).toEqual([200, ...range(49).map(() => 412)])
    const winner = answers.findIndex(answer => answer.status === 200)
    expect(bodyOf(yield* get(namespace, "k"))).toMatchObject({ version: 1, value: winner })
  })

  check("increments with If-Match lose nothing", function* () {
    const namespace = space()
    yield* put(namespace, "k", 0)
    let unknown = 0
    const increments = times(30)
    const countUp = Effect.repeat(
      Effect.flatMap(Effect.repeat(get(namespace, "k"), { until: ({ status }) => status === 200 }), answer => {
        const { value } = bodyOf<{ readonly value: number }>(answer)
        return put(namespace, "k", value + 1, { headers: { "if-match": answer.headers.etag } })
      }),
      {
        until: ({ status }) => {
          if (status === 503) unknown++
          return status === 200
        }
      }
    )
    yield* Effect.forEach(range(increments), () => countUp, all)
    const { value, version } = bodyOf<EntryBody>(yield* get(namespace, "k"))
    expect(version).toBe(Number(value) + 1)
    expect(value).toBeGreaterThanOrEqual(increments)
    expect(value).toBeLessThanOrEqual(increments + unknown)
  })

  check("of many that delete one key, exactly one succeeds", function* () {
    const namespace = space()
    yield* put(namespace, "k", 1)
    const answers = yield* Effect.forEach(range(30), () => remove(namespace, "k"), all)
    expect(answers.filter(answer => answer.text === '{"deleted":true}')).toHaveLength(1)
  })

  check("batches never interleave in the feed", function* () {
    const namespace = space()
    const start = yield* end
    const operations = (writer: number) =>
      range(20).map(index => ({ op: "set", namespace, key: `k${index}`, value: [writer, index] }))
    // On a machine that is slow enough a write is answered with 503, and done or not.
    let unknown = 0
    const answered = <E, R>(write: Effect.Effect<Answer, E, R>, records: number) =>
      Effect.repeat(write, {
        until: ({ status, text }) => {
          if (status !== 503) expect([status, text]).toEqual([200, expect.any(String)])
          else unknown += records
          return status !== 503
        }
      })
    const batched = (writer: number) => answered(batch(operations(writer)), 20)
    const single = (value: number) => answered(put(namespace, "single", value), 1)
    yield* Effect.all([Effect.forEach(range(40), batched, all), Effect.forEach(range(40), single, all)], all)
    const records = yield* changesOf(namespace, start)
    expect(records.length).toBeGreaterThanOrEqual(840)
    expect(records.length).toBeLessThanOrEqual(840 + unknown)
    expect(new Set(records.map(({ value }) => JSON.stringify(value))).size).toBe(840)
    for (let at = 0; at < records.length; ) {
      if (records[at]!.key === "single") {
        at++
        continue
      }
      const [writer] = records[at]!.value as ReadonlyArray<number>
      const together = records.slice(at, at + 20)
      expect(together.map(record => record.value)).toEqual(range(20).map(index => [writer, index]))
      at += 20
    }
  })

  check("pollers that race writers see every seq once and in order", function* () {
    const namespaces = range(4).map(() => space())
    const start = yield* end
    const done = yield* Deferred.make<number>()
    const poller = (limit: number, wait: number) =>
      Effect.gen(function* () {
        const seen: Array<ChangeBody> = []
        for (let after = start; ; ) {
          const finished = yield* Deferred.poll(done)
          const page = yield* changes(`after=${after}&limit=${limit}${finished._tag === "None" ? `&wait=${wait}` : ""}`)
          seen.push(...page.changes)
          after = page.lastSeq
          if (finished._tag === "Some" && after >= (yield* finished.value)) return seen
        }
      })
    const writers = Effect.gen(function* () {
      yield* Effect.forEach(
        range(times(300)),
        index => {
          const namespace = namespaces[index % 4]!
          if (index % 7 === 0)
            return batch(range(5).map(part => ({ op: "set", namespace, key: `b${part}`, value: index })))
          return index % 5 === 0 ? remove(namespace, `k${index % 10}`) : put(namespace, `k${index % 10}`, index)
        },
        { concurrency: 16, discard: true }
      )
      const last = (yield* end) + 1
      yield* Deferred.succeed(done, last)
      // Wakes those who wait after the last of the writes.
      yield* put(namespaces[0]!, "last", true)
      return last
    })
    const pollers = [poller(1000, 60), poller(7, 60), poller(1, 0), poller(100, 0)]
    const [last, ...views] = yield* Effect.all([writers, ...pollers], all)
    for (const view of views) {
      expect(view.map(record => record.seq)).toEqual(range(last - start).map(index => start + 1 + index))
    }
  })
}
