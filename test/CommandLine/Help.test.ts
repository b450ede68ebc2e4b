/** The help of commands. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { help as helpOfService } from "../../src/app/Serve.ts"
import { examples } from "../../src/CommandLine/Examples.ts"
import { call } from "./InProcess.ts"

/** The paths of all commands, as the help lists them. */
const commands = Effect.map(call(["--help"]), ({ stdout }) =>
  [...stdout.matchAll(/^ {2}(\S+(?: \S+)*) {2,}\S/gm)].map(([, path = ""]) => path)
)

/** The arguments of `causeway` in an example, as a shell passes them. */
const argumentsOf = (example: string): ReadonlyArray<string> => {
  const [, rest = ""] = /(?:^|[ |])causeway (.*?)(?: [>|] .*)?$/.exec(example) ?? []
  return [...rest.matchAll(/'([^']*)'|(\S+)/g)].map(([, quoted, word]) => quoted ?? word ?? "")
}

/** Commands that start a service, use files, or are repeated while the service is unavailable. */
const isNotRun = (path: string): boolean =>
  /^(?:serve|dev|kv watch|batch|export|import|backup|restore|migrate-store|openapi|sessions .*|chat)$/.test(path)

describe("the help of a command", () => {
  it.effect("has one or two examples, whose arguments the command takes", () =>
    Effect.gen(function* () {
      const paths = yield* commands
      assert.sameMembers(Object.keys(examples), [...paths])
      for (const path of paths) {
        const own = examples[path] ?? []
        assert.include([1, 2], own.length, path)
        const shown =
          path === "serve" || path === "dev" ? helpOfService() : (yield* call([...path.split(" "), "--help"])).stdout
        for (const example of own) {
          assert.include(shown, `  ${example}\n`)
          const args = argumentsOf(example)
          assert.deepStrictEqual(args.slice(0, path.split(" ").length), path.split(" "), example)
          // An unknown option would be refused before the help.
          assert.strictEqual((yield* call([...args, "--help"])).code, 0, example)
          if (isNotRun(path)) continue
          const { code, stderr } = yield* call(args, { CAUSEWAY_URL: "http://127.0.0.1:1", CAUSEWAY_TOKEN: "t" })
          const expected = path === "connection" ? [0] : [6]
          assert.include(expected, code, `${example}\n${stderr}`)
        }
      }
    })
  )

  it.effect("names what connects in one line, and causeway connection explains it", () =>
    Effect.gen(function* () {
      const { stdout } = yield* call(["kv", "get", "--help"])
      assert.include(stdout, "To connect: --url, --token-file (or CAUSEWAY_TOKEN_FILE), --profile and --timeout; ")
      assert.notInclude(stdout, "--url address")
      assert.include(stdout, "$ causeway kv get [--value-only] [--json] <namespace> <key>")
      // These have another meaning there.
      assert.include((yield* call(["backup", "--help"])).stdout, "--url address")
      const { stdout: page } = yield* call(["connection"])
      for (const name of [
        "CAUSEWAY_URL",
        "CAUSEWAY_TOKEN_FILE",
        "CAUSEWAY_SESSION_TOKEN",
        "CAUSEWAY_PROFILE",
        "default 30"
      ]) {
        assert.include(page, name)
      }
      for (const line of page.split("\n")) assert.isAtMost(line.length, 120)
    })
  )
})
