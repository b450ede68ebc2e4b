/** What the console copies, as a shell takes it. */
import { execFileSync } from "node:child_process"
import { FastCheck as fc } from "effect"
import { assert, describe, it } from "vitest"
import { ofEntry, ofNamespace, ofSession, word } from "../../src/Console/Service/Copies.ts"

const place = { origin: "http://127.0.0.1:8080", store: "/api/v1", page: "http://127.0.0.1:8080/console/" }

const textsOf = (copies: ReadonlyArray<{ readonly text: string }>): ReadonlyArray<string> =>
  copies.map(({ text }) => text)

describe("what the console copies", () => {
  it("is an entry, its request, its command and its link", () => {
    assert.deepStrictEqual(textsOf(ofEntry(place, "tenant:a/b", "it's")), [
      "it's",
      `curl 'http://127.0.0.1:8080/api/v1/kv/tenant%3Aa%2Fb/it'\\''s' -H "Authorization: Bearer $KV_API_KEY"`,
      `causeway --url http://127.0.0.1:8080 kv get tenant:a/b 'it'\\''s'`,
      "http://127.0.0.1:8080/console/#/store/tenant%3Aa%2Fb/it's"
    ])
    assert.include(textsOf(ofEntry(place, "n", "--help")), "causeway --url http://127.0.0.1:8080 -- kv get n --help")
  })

  it("is a namespace or a session", () => {
    assert.include(textsOf(ofNamespace(place, "n")), "causeway --url http://127.0.0.1:8080 kv list n")
    assert.include(textsOf(ofSession(place, "0a")), "causeway --url http://127.0.0.1:8080 chat --session 0a")
  })

  it("is one word for a shell, whatever the name", () => {
    const text = fc.stringMatching(/^[^\0]{0,20}$/)
    fc.assert(
      fc.property(fc.array(text, { minLength: 1, maxLength: 30 }), texts => {
        const printed = execFileSync("sh", ["-c", `printf '%s\\0' ${texts.map(word).join(" ")}`], { encoding: "utf8" })
        assert.deepStrictEqual(printed.split("\0").slice(0, -1), texts)
      }),
      { seed: 1, numRuns: 20 }
    )
  })
})
