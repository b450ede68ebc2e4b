/** The rules of imports, by the readers of the command line and of the console. */
import { assert, describe, it } from "@effect/vitest"
import fc from "fast-check"
import * as ExactJson from "../../src/base/Json/ExactJson.ts"
import {
  batchesOf,
  type EntryLine,
  ImportBatch,
  linesOf,
  parseLine,
  type ReadMembers,
  type TextLine
} from "../../src/Client/EntryLines.ts"
import { readMembers as consoleMembers } from "../../src/Console/JsonText.ts"
import { times } from "../Scale.ts"

async function* chunksOf(bytes: Uint8Array, size: number) {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size)
}

const all = async <A>(items: AsyncIterable<A>): Promise<ReadonlyArray<A>> => {
  const found: Array<A> = []
  for await (const item of items) found.push(item)
  return found
}

describe("lines of an import", () => {
  it("are found with their ends, however the bytes arrive", async () => {
    const line = fc.string({ unit: "grapheme" }).map(text => text.replace(/[\r\n]/g, ""))
    await fc.assert(
      fc.asyncProperty(fc.array(line), fc.integer({ min: 1, max: 9 }), fc.boolean(), async (texts, size, hasBreak) => {
        const whole = Buffer.from(texts.join("\n") + (hasBreak && texts.length > 0 ? "\n" : ""))
        const found = await all(linesOf(chunksOf(whole, size), { offset: 10, line: 3 }))
        const expected = whole.length === 0 ? [] : hasBreak ? texts : texts.at(-1) === "" ? texts.slice(0, -1) : texts
        assert.deepStrictEqual(
          found.map(({ text }) => text),
          expected
        )
        assert.deepStrictEqual(
          found.map(({ number }) => number),
          expected.map((_, index) => index + 4)
        )
        if (found.length > 0) assert.strictEqual(found.at(-1)?.end, whole.length + 10)
        assert.isTrue(Buffer.concat(found.map(({ bytes }) => bytes)).equals(whole))
      }),
      { numRuns: times(100) }
    )
  })

  it("are not changed if they are not UTF-8, and lose a byte order mark", async () => {
    const bytes = Buffer.concat([Buffer.from("\ufeff{}\r\n"), Buffer.from("caf\xe9\n", "latin1"), Buffer.from("ok")])
    const found = await all(linesOf(chunksOf(bytes, 1000)))
    assert.deepStrictEqual(
      found.map(({ text }) => text),
      ["{}", undefined, "ok"]
    )
  })

  it("are grouped into batches within both limits, in order", async () => {
    const line = fc.nat(30).map(length => "x".repeat(length))
    await fc.assert(
      fc.asyncProperty(fc.array(line), fc.integer({ min: 1, max: 5 }), fc.nat(60), async (texts, lines, bytes) => {
        const whole = Buffer.from(texts.map(text => `${text}\n`).join(""))
        const batches = await all(batchesOf(linesOf(chunksOf(whole, 7)), { lines, bytes }))
        assert.deepStrictEqual(
          batches.flat().map(({ text }) => text),
          texts
        )
        for (const batch of batches) {
          assert.isTrue(batch.length > 0 && batch.length <= lines)
          const size = batch.reduce((sum, { bytes }) => sum + bytes.length, 0)
          assert.isTrue(batch.length === 1 || size <= bytes)
        }
      }),
      { numRuns: times(100) }
    )
  })
})

/** The entry as JSON, or the problem. */
const parsed = <Value>(
  text: TextLine["text"],
  namespace: string | undefined,
  replaces: boolean,
  read: ReadMembers<Value>
) => {
  const found = parseLine({ number: 7, text }, { namespace, replaces }, read)
  if (found === undefined) return undefined
  assert.strictEqual(found.line, 7)
  if ("problem" in found) return found.problem
  const { line: _, value, ...rest } = found
  const json = typeof value === "string" ? value : ExactJson.textOf(value)
  return `${JSON.stringify(rest).slice(0, -1)},"value":${json}}`
}

describe.each([
  ["command line", ExactJson.readMembers],
  ["console", consoleMembers]
] as ReadonlyArray<readonly [string, ReadMembers<unknown>]>)("the entry of a line, by the %s", (_, read) => {
  it.each<readonly [string | undefined, string | undefined, string | undefined]>([
    ["", "n", undefined],
    [" \t", "n", undefined],
    [undefined, "n", "it is not UTF-8"],
    ['{"key":"k","value":1}', undefined, "it has no namespace"],
    ['{"namespace":5,"key":"k","value":1}', undefined, "it has no namespace"],
    ['{"key":"k","value":1}', "n", '{"namespace":"n","key":"k","value":1}'],
    [
      '{"namespace":"m","key":"k","value":1.0,"version":3,"updatedBy":"x","updatedAt":1,"expiresAt":null}',
      undefined,
      '{"namespace":"m","key":"k","value":1.0}'
    ],
    [
      '{"key":"k","value":{"b":12345678901234567890,"1":"é"},"expiresAt":9}',
      "n",
      '{"namespace":"n","key":"k","expiresAt":9,"value":{"b":12345678901234567890,"1":"é"}}'
    ],
    ['{"key":"k","value":null}', "n", '{"namespace":"n","key":"k","value":null}'],
    ['{"namespace":"m","key":"k"}', "m", "it has no value"],
    ['{"value":1}', "n", "it has no key"],
    ['{"key":5,"value":1}', "n", "its key is not text"],
    ['{"key":"k","value":1,"ttl":5}', "n", 'it has a member "ttl", which no entry has'],
    ['{"key":"k","value":1,"expiresAt":"soon"}', "n", "expiresAt is not a time in epoch milliseconds"],
    ['{"key":"k","value":1,"expiresAt":1.5}', "n", "expiresAt is not a time in epoch milliseconds"]
  ])("%s", (text, namespace, expected) => {
    assert.strictEqual(parsed(text, namespace, true, read), expected)
    assert.strictEqual(parsed(text, namespace, false, read), expected)
  })

  it.each(["[1]", "5", '{"key":', '{"key":"k","value":1} x'])("%s is no entry", text => {
    assert.match(parsed(text, "n", true, read) ?? "", /object|JSON|column/)
  })

  it("is imported into another namespace only if the destination replaces that of the line", () => {
    const text = '{"namespace":"m","key":"k","value":1}'
    assert.strictEqual(parsed(text, "n", true, read), '{"namespace":"n","key":"k","value":1}')
    assert.strictEqual(parsed(text, "n", false, read), 'its namespace is "m", and not "n"')
  })
})

describe("a batch of an import", () => {
  const entry = (key: string, line: number, expiresAt?: number): EntryLine<number> => ({
    ...{ namespace: "n", key, value: 1, line },
    ...(expiresAt !== undefined && { expiresAt })
  })
  const entries = [entry("a", 1), entry("b", 2, 50), entry("a", 3), entry("c", 4, 90), entry("d", 5)]
  const linesIn = (batch: ImportBatch<EntryLine<number>>) => batch.entries.map(({ line }) => line)

  it("has all entries at first, or the first of each key if existing ones are skipped", () => {
    assert.deepStrictEqual(linesIn(ImportBatch.of(entries, "replace", 0)), [1, 2, 3, 4, 5])
    assert.deepStrictEqual(linesIn(ImportBatch.of(entries, "stop", 60)), [1, 3, 4, 5])
    assert.deepStrictEqual(linesIn(ImportBatch.of(entries, "skip", 60)), [1, 4, 5])
  })

  it("leaves out what has expired by the time of the service, and existing entries", () => {
    const first = ImportBatch.of(entries, "skip", 0)
    const second = first.withoutExpired(50)!
    assert.deepStrictEqual(linesIn(second), [1, 4, 5])
    const third = second.withoutExisting([{ namespace: "n", key: "a" }])
    assert.deepStrictEqual(linesIn(third), [4, 5])
    assert.deepStrictEqual(third.outcome, { written: 2, skipped: 2, expired: 1 })
    const last = third.withoutExpired(100)!.withoutExisting([{ namespace: "n", key: "d" }])
    assert.deepStrictEqual([linesIn(last), last.outcome], [[], { written: 0, skipped: 3, expired: 2 }])
  })

  it("is not sent again for a time by which none of its entries has expired", () => {
    assert.isUndefined(ImportBatch.of(entries, "replace", 60).withoutExpired(70))
    assert.isUndefined(ImportBatch.of(entries, "replace", 0).withoutExpired(49))
  })
})
