import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Cause, ConfigProvider, Console, Effect, Exit } from "effect"
import * as Cli from "../../src/app/Cli.ts"
import { developmentKeys } from "../../src/app/Configuration.ts"
import * as Banner from "../../src/app/Server.ts"
import * as Setting from "../../src/base/Setting.ts"
import { version } from "../../src/base/Version.ts"
import { CommandFailed } from "../../src/CommandLine/CommandFailed.ts"
import { fail } from "../CommandLine/InProcess.ts"
import { runToEnd } from "../service/Command.ts"
import { serve } from "../service/InProcess.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import { test } from "../Tests.ts"

/** What the command prints on standard output within this process. */
const printed = (args: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const lines: Array<unknown> = []
    const silent = yield* Console.consoleWith(Effect.succeed)
    yield* Cli.run(args).pipe(
      Effect.withConsole({
        ...silent,
        log: (...parts: ReadonlyArray<unknown>) => Effect.sync(() => lines.push(...parts))
      })
    )
    return lines.join("\n")
  })

const exitCode = (exit: Exit.Exit<unknown, unknown>): number => {
  let code = -1
  Cli.teardown([])(exit, given => {
    code = given
  })
  return code
}

/** A failed start: one message for a person, and nothing else. */
const assertFailedStart = (ended: { code: number | null; stdout: string; stderr: string }, code = 1) => {
  assert.strictEqual(ended.code, code, ended.stderr)
  assert.strictEqual(ended.stdout, "")
  assert.match(ended.stderr, /^causeway cannot start\. /)
  assert.notMatch(ended.stderr, /^\s+at /m)
  return ended.stderr
}

const key = { KV_API_KEY: "sesame" }

describe("Cli", () => {
  test.effect("lists every variable", function* () {
    const help = yield* printed(["serve", "--help"])
    assert.strictEqual(yield* printed(["dev", "-h"]), help)
    const names = Setting.all().map(({ name }) => name)
    assert.includeMembers(names, ["HOST", "PORT", "DATA_DIR", "STORE_URL", "KV_API_KEY", "CHANGES_RETENTION"])
    for (const name of names) assert.match(help, new RegExp(`^ {2}${name} `, "m"))
  })

  test.effect("prints the version of the package", function* () {
    assert.strictEqual(yield* printed(["--version"]), version)
    const manifest = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8"))
    assert.strictEqual(version, manifest.version)
  })

  test.effect("maps ends to exit codes", function* () {
    const usage = yield* Effect.flip(Cli.run(["--port", "1"]))
    assert.include(usage.message, "--port")
    assert.strictEqual(exitCode(Exit.fail(usage)), 2)
    assert.strictEqual(exitCode(Exit.fail(new CommandFailed({ message: "", exitCode: 1 }))), 1)
    assert.strictEqual(exitCode(Exit.die(new Error("a bug"))), 1)
    assert.strictEqual(exitCode(yield* Effect.exit(Effect.interrupt)), 0)
    assert.strictEqual(exitCode(Exit.failCause(Cause.sequential(Cause.die("a bug"), Cause.empty))), 1)
    assert.strictEqual(exitCode(Exit.void), 0)
  })

  test.scoped("answers unknown arguments with exit code 2", function* () {
    const { code, stdout, stderr } = yield* runToEnd({}, ["sreve"])
    assert.strictEqual(code, 2)
    assert.strictEqual(stdout, "")
    assert.strictEqual(
      stderr,
      'causeway does not take "sreve"\nDid you mean causeway serve? causeway --help lists its arguments.\n'
    )
  })

  test.effect("lets no control character of an argument or a variable reach the terminal", function* () {
    const name = "\u001b]0;title\u0007\u009b\u202e"
    const own = { CAUSEWAY_PROFILES: "/nowhere/profiles.json", CAUSEWAY_URL: "http://127.0.0.1:1" }
    for (const [args, env = own] of [
      [[name]],
      [["kv", "set", "n", "k", "--file", name]],
      [["kv", "get", "n", "k", "--token-file", name]],
      [["kv", "get", "n", "k", "--profile", name]],
      [["kv", "get", "n", "k", "--url", name]],
      [["kv", "get", "n", "k"], { CAUSEWAY_PROFILES: `/dev/null/${name}` }],
      [["batch", name]],
      [["import", name]],
      [["export", "n", "--output", `/dev/null/${name}`]],
      [["backup", `/nowhere/${name}`]],
      [["restore", `/nowhere/${name}`]]
    ] as ReadonlyArray<readonly [ReadonlyArray<string>, Readonly<Record<string, string>>?]>) {
      const { stderr: text } = yield* fail(args, env)
      assert.notStrictEqual(text, "")
      assert.notMatch(text, /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e]/, args.join(" "))
    }
  })

  const onNode20 = `
    Object.defineProperty(process, "versions", { value: { ...process.versions, node: "20.20.2" } })
    process.dlopen = () => process.abort()
  `
  const olderNode = { NODE_OPTIONS: `--import data:text/javascript,${encodeURIComponent(onNode20)}` }

  test.scoped(
    "refuses a Node that is too old, before anything native is loaded, and prints the help on it",
    function* () {
      const message = assertFailedStart(yield* runToEnd({ ...key, ...olderNode }))
      assert.strictEqual(message, "causeway cannot start. It needs Node 22 or later, and this is Node 20.20.2.\n")
      const { code, stdout } = yield* runToEnd(olderNode, ["--help"])
      assert.strictEqual(code, 0)
      assert.include(stdout, "Usage: causeway")
    }
  )

  test.effect("names all invalid variables at once", function* () {
    const env = { PORT: "99999", LOG_LEVEL: "VERBOSE", STORE_URL: "mysql://u:sesame@db/kv", KV_API_KEY: "" }
    const { code, stderr: message } = yield* fail([], env)
    assert.strictEqual(code, 2)
    assert.match(message, /^causeway cannot start\. The configuration is wrong:\n/)
    assert.include(message, 'PORT: "99999" is not a whole number from 0 to 65535')
    assert.include(
      message,
      'LOG_LEVEL: "VERBOSE" is not one of trace, debug, info, warning, error, fatal (warn is warning)'
    )
    assert.include(message, "STORE_URL: the value is not sqlite:, sqlite:<path of a directory> or postgres:")
    assert.include(message, "KV_API_KEY: it must be set, unless DEV_MODE is true")
    assert.notInclude(message, "sesame")
  })

  test.scopedLive("names host and port that are in use", function* () {
    const { port } = new URL((yield* serve(key)).url)
    const message = assertFailedStart(yield* runToEnd({ ...key, PORT: port }))
    assert.include(message, `Cannot listen on host 127.0.0.1, port ${port}: the address is already in use`)
  })

  test.scopedLive("names the file of a store that it refuses", function* () {
    const directory = yield* temporaryDirectory
    const file = join(directory, "kv.db")
    writeFileSync(file, "This is a diary and no database.".repeat(100))
    const nowhere = join(file, "data")
    const foreign = yield* Effect.flip(serve({ ...key, STORE_URL: `sqlite:${directory}`, DATA_DIR: "unused" }))
    assert.include(foreign.message, file)
    assert.include((yield* Effect.flip(serve({ ...key, DATA_DIR: nowhere }))).message, nowhere)
  })

  test.scopedLive("warns of likely mistakes", function* () {
    const dev = yield* serve({ DEV_MODE: "yes", HOST: "0.0.0.0", METRICS_TOKEN: "t" })
    assert.match(dev.output(), /WARN .*development keys/)
    assert.match(dev.output(), /WARN .*METRICS_PROMETHEUS is not true/)
    assert.include(dev.output(), developmentKeys.write)
    const production = yield* serve({ ...key, DEV_MODE: "true", NODE_ENV: "production" })
    assert.match(production.output(), /"WARN".*DEV_MODE is ignored/)
  })
})

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
