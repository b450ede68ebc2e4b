import { assert, describe, it } from "@effect/vitest"
import { ConfigProvider, Effect } from "effect"
import * as Banner from "../../src/app/Server.ts"

describe("the command that the banner shows", () => {
  it.effect.each<readonly [string | undefined, string]>([
    [undefined, "npx causewayd"],
    ["./causewayd-0.1.0.tgz", "npx --yes --package ./causewayd-0.1.0.tgz causeway"],
    ["../it's here.tgz\n\neffect@3", "npx --yes --package '../it'\\''s here.tgz' --package effect@3 causeway"]
  ])("where npx was given %j", ([given, expected]) =>
    Effect.gen(function* () {
      const env = new Map(given === undefined ? [] : [["npm_config_package", given]])
      const program = yield* Effect.withConfigProvider(Banner.program, ConfigProvider.fromMap(env))
      assert.strictEqual(program, expected)
    })
  )
})
