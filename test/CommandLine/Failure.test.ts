/** What commands say about failed requests. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Client from "../../src/Client/Effect/Client.ts"
import { failureOf } from "../../src/CommandLine/Service.ts"
import { call } from "./InProcess.ts"

const url = "http://127.0.0.1:8080"

const response = { message: "no", status: 401, requestId: undefined, retryAfterMs: 0 }

describe("a refused credential", () => {
  it.each([
    ["store", "the key of the service", "CAUSEWAY_TOKEN"],
    ["sessions", "the token of a user", "CAUSEWAY_SESSION_TOKEN"]
  ] as const)("of %s: the advice names %s and the variable that is read", (kind, credential, variable) => {
    const hintOf = (source: string) =>
      failureOf({ kind, source, url })(new Client.Unauthorized(response as never)).hint ?? ""
    assert.strictEqual(
      hintOf(""),
      `There is no credential. Give ${credential} by --token-file, ${variable} or a profile.`
    )
    assert.strictEqual(
      hintOf("--token-file"),
      `The credential is from --token-file. Give ${credential} by --token-file, ${variable} or a profile.`
    )
  })

  it("that only reads is called so", () => {
    const { hint } = failureOf({ kind: "store", source: "KV_API_KEY", url })(new Client.Forbidden(response as never))
    assert.include(hint, "only reads")
  })

  it.effect.each([
    [["kv", "get"], "CAUSEWAY_TOKEN_FILE", "CAUSEWAY_SESSION_TOKEN"],
    [["sessions", "list"], "CAUSEWAY_SESSION_TOKEN_FILE", "CAUSEWAY_TOKEN"],
    [["sessions", "show"], "CAUSEWAY_SESSION_TOKEN_FILE", "CAUSEWAY_TOKEN"],
    [["sessions", "tail"], "CAUSEWAY_SESSION_TOKEN_FILE", "CAUSEWAY_TOKEN"],
    [["sessions", "send"], "CAUSEWAY_SESSION_TOKEN_FILE", "CAUSEWAY_TOKEN"],
    [["chat"], "CAUSEWAY_SESSION_TOKEN_FILE", "CAUSEWAY_TOKEN"]
  ] as const)("%j: the help names the variables that are read", ([args, file, other]) =>
    Effect.gen(function* () {
      const { stdout } = yield* call([...args, "--help"])
      assert.include(stdout, file)
      assert.notInclude(stdout, other)
    })
  )
})

describe("an answer that is not of the service", () => {
  it.each([
    [408, 6],
    [429, 6],
    [502, 6],
    [504, 6],
    [200, 1],
    [500, 1]
  ])("with status %d: the exit code is %d", (status, expected) => {
    const failed = failureOf(
      { kind: "store", source: "", url },
      "repeat it"
    )(new Client.InvalidResponse({ ...response, status } as never))
    assert.strictEqual(failed.exitCode, expected)
    assert.strictEqual(failed.hint?.includes("A write may or may not have been applied: repeat it."), expected === 6)
  })
})
