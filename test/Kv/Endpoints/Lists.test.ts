import { describe, expect, it } from "@effect/vitest"
import { type Context, Effect, FastCheck as fc, Stream } from "effect"
import { JsonText } from "../../../src/base/Json/JsonText.ts"
import * as ListBody from "../../../src/Kv/Endpoints/ListBody.ts"
import { withList } from "../../../src/Kv/Endpoints/Lists.ts"
import * as Entry from "../../../src/Kv/Entry.ts"
import { type Store, StoreUnavailable } from "../../../src/Kv/Store.ts"
import { times } from "../../Scale.ts"

const entry = (key: string, value: string) => {
  const names = { namespace: "n", key, version: 1, updatedBy: "t", updatedAt: 1, expiresAt: null }
  return Entry.encode({ ...names, value: JsonText(JSON.stringify(value)) })
}

type Entries = ReadonlyArray<ReturnType<typeof entry>>

const expected = (entries: Entries): string => `{"items":[${entries.map(({ json }) => json).join(",")}]}`

const textOf = (body: string | Uint8Array): string =>
  typeof body === "string" ? body : new TextDecoder("utf-8", { fatal: true }).decode(body)

const bodyOf = (portions: ReadonlyArray<Entries>): Effect.Effect<string> =>
  Effect.map(Stream.runCollect(ListBody.ofPortions(Stream.fromIterable(portions))), chunks =>
    Buffer.concat([...chunks]).toString()
  )

describe("the body of a list", () => {
  it("is bytes if it is large", () => {
    expect(ListBody.ofPage([])).toBe('{"items":[]}')
    expect(ListBody.ofPage([entry("a", "b")])).toBe(expected([entry("a", "b")]))
    const large = [entry("a", "x".repeat(20_000)), entry("b", "y")]
    const body = ListBody.ofPage(large)
    expect(body).toBeInstanceOf(Uint8Array)
    expect(textOf(body)).toBe(expected(large))
  })

  it.effect("of a whole list is that of its portions", () =>
    Effect.promise(() =>
      fc.assert(
        fc.asyncProperty(
          fc.array(fc.array(fc.tuple(fc.string(), fc.string({ unit: "grapheme" })), { maxLength: 4 }), {
            maxLength: 5
          }),
          async lists => {
            const portions = lists.map(list => list.map(([key, value]) => entry(key, value)))
            expect(await Effect.runPromise(bodyOf(portions))).toBe(expected(portions.flat()))
          }
        ),
        { numRuns: times(100) }
      )
    )
  )
})

it.effect("a whole list that cannot be opened releases what it has taken", () =>
  Effect.gen(function* () {
    let isReleased = false
    const release = Effect.sync(() => {
      isReleased = true
    })
    const listAll = () =>
      Effect.zipRight(
        Effect.addFinalizer(() => release),
        new StoreUnavailable({ reason: "away" })
      )
    const store = { listAll } as unknown as Context.Tag.Service<Store>
    yield* Effect.flip(withList(store, { namespace: "n", prefix: "" }, () => Effect.void))
    expect(isReleased).toBe(true)
  })
)
