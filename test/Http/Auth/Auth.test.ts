import { describe, expect, it } from "@effect/vitest"
import { ConfigProvider, Effect, FastCheck as fc, Option, Redacted } from "effect"
import * as Auth from "../../../src/Http/Auth/Auth.ts"
import { times } from "../../Scale.ts"
import { test } from "../../Tests.ts"

const key = (text: string) => Option.some(Redacted.make(text))

const make = (keys: Auth.Keys) => ({ accessOf: Auth.accessBy(keys) })

const both = make({ write: key("writer"), read: key("reader") })

describe("accessOf", () => {
  it("accepts the scheme in any case and spaces around the token", () => {
    for (const header of ["bearer writer", "BEARER writer", "Bearer    writer", "Bearer writer   "]) {
      expect([header, both.accessOf(header)]).toEqual([header, "write"])
    }
  })

  it("admits nothing else", () => {
    const headers = [
      "",
      "Bearer",
      "Bearer ",
      "writer",
      "Basic writer",
      "Bearerwriter",
      " Bearer writer",
      "Bearer\twriter"
    ]
    headers.push("Bearer write", "Bearer writerx", "Bearer Writer", "Bearer writer reader", "Bearer writer,reader")
    for (const header of [...headers, undefined]) expect([header, both.accessOf(header)]).toEqual([header, undefined])
  })

  it("refuses an absent or empty credential", () => {
    for (const none of [Option.none(), key("")]) {
      const auth = make({ write: none, read: none })
      const tokens = ["", " ", "  ", ' ""', " undefined", " \u0000"]
      for (const header of [undefined, "", ...tokens.map(token => `Bearer${token}`)]) {
        expect([header, auth.accessOf(header)]).toEqual([header, undefined])
      }
    }
  })

  it("grants a token that is both credentials the right to write", () => {
    expect(make({ write: key("same"), read: key("same") }).accessOf("Bearer same")).toBe("write")
  })

  it("compares keys of any characters by their bytes", () => {
    const auth = make({ write: key("schlüssel"), read: key("schlu\u0308ssel") })
    expect(auth.accessOf("Bearer schlüssel")).toBe("write")
    expect(auth.accessOf("Bearer schlu\u0308ssel")).toBe("read")
  })

  it("admits exactly the keys, whatever they are and whatever was asked before", () => {
    const token = fc.stringMatching(/^[!-~]{1,40}$/)
    fc.assert(
      fc.property(token, token, fc.array(token, { maxLength: 5 }), (write, read, others) => {
        fc.pre(write !== read)
        const auth = make({ write: key(write), read: key(read) })
        for (const other of [...others, write.slice(1), write + read, `${read}x`]) {
          if (other === write || other === read) continue
          expect(auth.accessOf(`Bearer ${other}`)).toBeUndefined()
          expect(auth.accessOf(`Bearer ${write}`)).toBe("write")
          expect(auth.accessOf(`Bearer ${read}`)).toBe("read")
        }
      }),
      { numRuns: times(100) }
    )
  })
})

describe("config", () => {
  const load = (entries: ReadonlyArray<readonly [string, string]>) =>
    Effect.withConfigProvider(Auth.config, ConfigProvider.fromMap(new Map(entries)))

  test.effect("reads both credentials and prints neither", function* () {
    const keys = yield* load([
      ["KV_API_KEY", "secret-one"],
      ["KV_AGENT_API_KEY", "secret-two"]
    ])
    expect(make(keys).accessOf("Bearer secret-one")).toBe("write")
    expect(make(keys).accessOf("Bearer secret-two")).toBe("read")
    expect(JSON.stringify(keys) + String(keys.write) + String(keys.read)).not.toContain("secret")
  })
})
