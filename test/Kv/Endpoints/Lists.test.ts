import { describe, expect, it } from "@effect/vitest"
import { type Context, Effect, FastCheck as fc, Stream } from "effect"
import { JsonText } from "../../../src/base/Json/JsonText.ts"
import { keyOf, type Requested } from "../../../src/Kv/Endpoints/IdempotentWriting.ts"
import * as ListBody from "../../../src/Kv/Endpoints/ListBody.ts"
import { withList } from "../../../src/Kv/Endpoints/Lists.ts"
import * as Entry from "../../../src/Kv/Entry.ts"
import { type Store, StoreUnavailable } from "../../../src/Kv/Store.ts"
import type { Operation } from "../../../src/Kv/Write.ts"
import { times } from "../../Scale.ts"
import { del, set } from "../../suites/Store/Fixture.ts"

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

const request = (
  given: Partial<Requested> & { readonly operations?: ReadonlyArray<Operation>; readonly actor?: string }
) => {
  const { actor = "api", operations = [set("n", "k", 1)], ...rest } = given
  return { kind: "set", write: { operations, actor }, expiries: [], sender: undefined, ...rest } as const
}

const one = keyOf("a", request({}))

describe("the idempotency key of a request", () => {
  it("belongs to one tenant, whatever the names are", () => {
    const ids = [
      one,
      keyOf("b", request({})),
      ...["acme", "evil", "a", "", "null"].map(tenant => keyOf("a", request({ sender: { access: "write", tenant } }))),
      keyOf('a"', request({ sender: { access: "write", tenant: "ac" } })),
      keyOf("", request({ sender: { access: "write", tenant: "a" } }))
    ].map(({ id }) => id)
    expect(new Set(ids).size).toBe(ids.length)
    expect(keyOf("a", request({ kind: "batch", sender: { access: "write", actor: "anna" } })).id).toBe(one.id)
  })

  it("counts toward the tenant of the credential, or else that of the first namespace", () => {
    const tenantOf = (given: Parameters<typeof request>[0]) => keyOf("a", request(given)).tenant
    const [acme, other] = [set("tenant:acme/orders", "k", 1), set("tenant:other", "k", 1)]
    expect(tenantOf({ operations: [acme, other] })).toBe("acme")
    expect(tenantOf({ operations: [other, acme] })).toBe("other")
    expect(tenantOf({ operations: [set("orders", "k", 1), acme] })).toBe("")
    expect(tenantOf({ operations: [] })).toBe("")
    const prefixDelete = { namespace: "tenant:acme", prefix: "", limit: 1 }
    expect(tenantOf({ write: { operations: [], actor: "api", prefixDelete } })).toBe("acme")
    expect(tenantOf({ operations: [], sender: { access: "write", tenant: "acme" } })).toBe("acme")
    // Whose share it is in does not make it another key.
    const ids = [acme, other].map(operation => keyOf("a", request({ operations: [operation] })).id)
    expect(ids).toEqual([one.id, one.id])
  })

  it("distinguishes requests by all their parts", () => {
    const digests = [
      one,
      keyOf("a", request({ kind: "batch" })),
      keyOf("a", request({ actor: "anna" })),
      keyOf("a", request({ operations: [] })),
      keyOf("a", request({ operations: [set("n", "k", 2)] })),
      keyOf("a", request({ operations: [set("nk", "", 1)] })),
      keyOf("a", request({ operations: [set("n", "k", 1, { precondition: { match: [1] } })] })),
      keyOf("a", request({ operations: [set("n", "k", 1, { precondition: { match: "any" } })] })),
      keyOf("a", request({ operations: [set("n", "k", 1, { precondition: { noneMatch: "any" } })] })),
      keyOf("a", request({ operations: [del("n", "k")] })),
      keyOf("a", request({ operations: [set("n", "k", 1), set("n", "k", 1)] })),
      // The concatenated values are the same.
      keyOf("a", request({ operations: [set("n", "k", 11), set("n", "k", 1)] })),
      keyOf("a", request({ operations: [set("n", "k", 1), set("n", "k", 11)] })),
      keyOf("a", request({ expiries: [{ ttlMs: 1000 }] })),
      keyOf("a", request({ expiries: [{ expiresAt: 1000 }] })),
      ...[10, 11].map(limit =>
        keyOf(
          "a",
          request({ write: { operations: [], actor: "api", prefixDelete: { namespace: "n", prefix: "", limit } } })
        )
      )
    ].map(({ digest }) => digest)
    expect(new Set(digests).size).toBe(digests.length)
  })

  it("does not depend on when a lifetime ends", () => {
    fc.assert(
      fc.property(fc.nat(), fc.nat(), (first, second) => {
        const [a, b] = [first, second].map(expiresAt =>
          keyOf("a", request({ operations: [set("n", "k", 1, { expiresAt })], expiries: [{ ttlMs: 1000 }] }))
        )
        expect(a).toEqual(b)
      })
    )
  })
})
