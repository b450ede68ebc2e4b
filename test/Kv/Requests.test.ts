import { describe, expect, it } from "@effect/vitest"
import { Either, FastCheck as fc, ParseResult, Schema } from "effect"
import { JsonText, RawJson } from "../../src/base/Json/JsonText.ts"
import { plainDecoder } from "../../src/Http/Edge/Edge.ts"
import {
  BatchHeaders,
  BatchPayload,
  EntryPath,
  FollowParams,
  Preconditions,
  ReadPayload,
  SetPayload
} from "../../src/Kv/Requests.ts"
import { times } from "../Scale.ts"

const numRuns = times(1000)

const anything = fc.oneof(
  fc.constantFrom<unknown>("set", "delete", "", "n", 0, 1, -1, 1.5, null, undefined, true, [], {}),
  fc.constantFrom(new RawJson(JsonText("1")), new RawJson(JsonText('{"a":[]}')))
)

/** An object of some of these members, each with what is likely for it or anything. */
const someOf = (members: Readonly<Record<string, fc.Arbitrary<unknown>>>, others: ReadonlyArray<string> = ["other"]) =>
  fc
    .record(
      {
        ...Object.fromEntries(
          Object.entries(members).map(([name, likely]) => [
            name,
            fc.oneof({ weight: 9, arbitrary: likely }, { weight: 1, arbitrary: anything })
          ])
        ),
        ...Object.fromEntries(others.map(name => [name, fc.option(anything, { freq: 1, nil: undefined })]))
      },
      { requiredKeys: [] }
    )
    .chain(object => fc.constantFrom(object, { ...object, [others[0]!]: 1 }, drop(object, others)))

const drop = (object: object, names: ReadonlyArray<string>): object =>
  Object.fromEntries(Object.entries(object).filter(([name]) => !names.includes(name)))

const text = fc.constantFrom("n", "k", "tenant:a/b", "")
const raw = fc.constantFrom(new RawJson(JsonText("1")), new RawJson(JsonText("null")))

const operation = someOf({ op: fc.constantFrom("set", "delete"), namespace: text, key: text, value: raw }, [
  "ifVersion",
  "ttlMs",
  "expiresAt",
  "__proto__"
])

const cases: ReadonlyArray<readonly [string, Schema.Schema.All, fc.Arbitrary<unknown>]> = [
  ["a path", EntryPath, someOf({ namespace: text, key: text })],
  ["the headers of an entry", Preconditions, someOf({ "if-match": text, host: text }, ["if-none-match", "other"])],
  ["the headers of a batch", BatchHeaders, someOf({ "if-match": text, host: text }, ["if-none-match", "other"])],
  ["a set", SetPayload, someOf({ value: raw, actor: text }, ["ttlMs", "expiresAt", "ifVersion", "other"])],
  [
    "a query",
    FollowParams,
    someOf({ tenant: text, prefix: text, initial: fc.constantFrom("0", "1") }, ["after", "other"])
  ],
  [
    "a read of keys",
    ReadPayload,
    someOf({ keys: fc.array(someOf({ namespace: text, key: text }), { maxLength: 3 }), keysOnly: fc.boolean() })
  ],
  [
    "a batch",
    BatchPayload,
    someOf({
      operations: fc.array(fc.oneof({ weight: 9, arbitrary: operation }, anything), { maxLength: 3 }),
      actor: text
    })
  ]
]

describe("the plain decoder of", () => {
  it.each(cases)("%s gives what the schema would, or nothing", (_, schema, input) => {
    const decodePlain = plainDecoder(schema)
    const decode = ParseResult.decodeUnknownEither(schema as Schema.Schema<unknown>)
    let taken = 0
    fc.assert(
      fc.property(fc.oneof({ weight: 20, arbitrary: input }, { weight: 1, arbitrary: anything }), input => {
        const plain = decodePlain(input)
        if (plain === undefined) return
        taken++
        expect(Either.right(plain)).toEqual(decode(input))
      }),
      { numRuns }
    )
    expect(taken).toBeGreaterThan(numRuns / 50)
  })

  it("a union of structs takes none whose unknown members another struct of it has", () => {
    const part = Schema.Struct({ b: Schema.String })
    const union = Schema.Struct({ a: Schema.Union(part, Schema.Struct({ b: Schema.String, c: Schema.String })) })
    expect(plainDecoder(union)({ a: { b: "", c: "" } })).toBeUndefined()
  })
})
