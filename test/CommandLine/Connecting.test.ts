/** How commands find the service and the credential, and their messages for invalid arguments. */
import { chmodSync, writeFileSync } from "node:fs"
import { syncBuiltinESMExports } from "node:module"
import os from "node:os"
import { join } from "node:path"
import { assert, describe, it, layer } from "@effect/vitest"
import { ConfigProvider, Effect, Function, Option } from "effect"
import * as Connection from "../../src/CommandLine/Connection.ts"
import { keys } from "../Harness.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import { test, testsOf } from "../Tests.ts"
import { proxy } from "./Proxy.ts"
import { call, Setting, layer as setting } from "./Setting.ts"

layer(setting, { excludeTestServices: true })("a command", it => {
  const test = testsOf(it)
  test.scoped("ends with a code and a message for each problem", function* () {
    const { url } = yield* Setting
    const fates = ["hang", "answer as another", "bad gateway"] as const
    const proxies = yield* Effect.forEach(fates, fate => proxy(Function.constant(url), Function.constant(fate)))
    const [silent, another, between] = proxies as [string, string, string]
    const cases: ReadonlyArray<readonly [string, Record<string, string>, number, RegExp]> = [
      ["kv get n k", { CAUSEWAY_TOKEN: "wrong" }, 5, /refuses the credential.*\n.*CAUSEWAY_TOKEN/],
      ["kv set n k 1", { CAUSEWAY_TOKEN: "key-that-reads" }, 5, /\n.*a key that writes|\n.*CAUSEWAY_TOKEN/],
      ["kv get n k", { CAUSEWAY_URL: "http://127.0.0.1:9" }, 6, /cannot be reached.*\n.*causeway dev/],
      [
        "kv get n k --timeout 1",
        { CAUSEWAY_URL: silent },
        6,
        /no answer within 1000 ms\n--timeout allows more time\.\n$/
      ],
      ["kv get n k", { CAUSEWAY_URL: "nowhere" }, 2, /CAUSEWAY_URL: "nowhere" is not an address/],
      ["kv get n k --url https://me:sesame@host:99999", {}, 2, /^--url: it is not an address\n/],
      ["kv get n k", { CAUSEWAY_URL: "http://h/?token=sesame" }, 2, /^CAUSEWAY_URL: it is not an http/],
      ["kv get n k", { CAUSEWAY_URL: between }, 6, /502.*\nTry again later\.\n$/],
      ["kv delete n --prefix k --yes", { CAUSEWAY_URL: between }, 6, /\n.*deletes the remaining entries\.\n$/],
      [
        "kv set n proxied 1 --idempotency-key mine",
        { CAUSEWAY_URL: between },
        6,
        /\n.*may or may not have been applied.*--idempotency-key mine/
      ],
      ["kv get n", {}, 2, /Missing argument <key>\ncauseway kv get --help/],
      ["kv list n --limit x", {}, 2, /^--limit: 'x' is not a whole number\n/],
      ["import --existing keep", {}, 2, /^--existing takes replace, skip\n/],
      ["kv get n k --url", {}, 2, /^--url takes a value\n/],
      ["kv get n --url http://a k --url http://b", {}, 2, /^--url is given twice/],
      ["kv lst", {}, 2, /^causeway kv does not take "lst"\nDid you mean causeway kv list\?/],
      ["kv get n k --jsn", {}, 2, /Did you mean causeway kv get --json\?/],
      ["kv set n k 1 --if-version -1", {}, 2, /^--if-version must be 0 or more\n/],
      ["kv delete n k --if-version -1", {}, 2, /^--if-version must be 1 or more\n/],
      ["kv delete n k --if-version 0", {}, 2, /^--if-version must be 1 or more\n/],
      ["export n --output /nowhere/x --retry-for -1", {}, 2, /^--retry-for must be 0 or more/],
      ["export n --output /nowhere/x", {}, 1, /x cannot be written: ENOENT/],
      ["serve --port 9", {}, 2, /\nIt is configured by variables, such as PORT=9000; causeway serve --help/],
      ["dev --port 9", {}, 2, /\nIt is configured by variables/],
      ["kv set n -x 1", {}, 2, /"-x"\nAfter -- arguments may start with -\./],
      ["-v", {}, 2, /Did you mean causeway --version\?/],
      ["--completions tcsh", {}, 2, /^--completions takes bash, zsh, fish\n/],
      ["kv get n .", {}, 2, /^key must not be "\."/],
      [`kv get n ${"k".repeat(2000)}`, {}, 2, /^key /],
      [`kv set n k 1 --actor ${"a".repeat(2000)}`, {}, 2, /^actor /],
      ["openapi --from-service", { CAUSEWAY_URL: another }, 1, /not an OpenAPI document\nIs this the address/],
      ["kv get n k", { CAUSEWAY_URL: `${url}/elsewhere` }, 1, /\nIs this the address of a Causeway service/]
    ]
    yield* Effect.forEach(
      cases,
      ([args, env, code, message]) =>
        Effect.map(call(args.split(" "), env), ended => {
          assert.strictEqual(ended.code, code, JSON.stringify([args, ended]))
          assert.strictEqual(ended.stdout, "")
          assert.match(ended.stderr, message)
          assert.notMatch(ended.stderr, /^ +at /m)
          assert.notInclude(ended.stderr, "sesame")
        }),
      { concurrency: 2 }
    )
  })

  test.effect("takes address and credential from a profile that only the user can read", function* () {
    const { files, url } = yield* Setting
    const profiles = join(files, "profiles.json")
    writeFileSync(join(files, "key"), `${keys.write}\n`, { mode: 0o600 })
    writeFileSync(profiles, JSON.stringify({ prod: { url, tokenFile: "key" }, default: { url, token: "wrong" } }), {
      mode: 0o600
    })
    const mine = { CAUSEWAY_PROFILES: profiles }
    const list = (args: ReadonlyArray<string>, more = {}) =>
      call(["kv", "list", "cli/profile", ...args], { CAUSEWAY_URL: "", CAUSEWAY_TOKEN: "", ...mine, ...more })
    assert.strictEqual((yield* list([])).code, 5)
    assert.strictEqual((yield* list(["--profile", "prod"], { CAUSEWAY_TOKEN: "wrong" })).code, 0)
    assert.strictEqual((yield* list([], { CAUSEWAY_TOKEN: keys.write })).code, 0)
    const unknown = yield* list(["--profile", "test"])
    assert.match(unknown.stderr, /no profile "test".*\nThere are prod, default\./)
    chmodSync(profiles, 0o644)
    const open = yield* list([])
    assert.strictEqual(open.code, 2)
    assert.match(open.stderr, /can be read by others\n.*chmod 600/)
    assert.notInclude(open.stderr, "wrong")
  })

  it.effect.each<readonly [string, string]>([
    ["backup", "How long a service may take for the copy; default 600"],
    ["kv list", "Maximum number of entries; default all"],
    ["import", "exists already; default replace"],
    ["chat", "of a new session; default assistant"]
  ])("names a default in the help of %s: %s", ([command, text]) =>
    Effect.map(call([...command.split(" "), "--help"]), ({ stdout }) => assert.include(stdout, text))
  )

  it.effect("needs no credential to ask for health", () =>
    Effect.map(call(["health"], { CAUSEWAY_TOKEN: "", CAUSEWAY_TOKEN_FILE: "/nowhere" }), ({ code, stdout }) => {
      assert.strictEqual(code, 0)
      assert.include(stdout, '"ready":true')
    })
  )

  test.effect("sends a credential that is configured with an address only to that origin", function* () {
    const { files, url } = yield* Setting
    const profiles = join(files, "origins.json")
    writeFileSync(profiles, JSON.stringify({ default: { url, token: keys.write } }), { mode: 0o600 })
    const other = ["--url", url.replace("127.0.0.1", "localhost")]
    const list = (args: ReadonlyArray<string>, env: Readonly<Record<string, string>>) =>
      Effect.map(call(["kv", "list", "cli/origin", ...args], { ...env }), ({ code }) => code)
    const ofProfile = { CAUSEWAY_PROFILES: profiles, CAUSEWAY_URL: "", CAUSEWAY_TOKEN: "" }
    assert.strictEqual(yield* list([], ofProfile), 0)
    assert.strictEqual(yield* list(other, ofProfile), 5)
    const ofEnvironment = { CAUSEWAY_URL: url, CAUSEWAY_TOKEN: keys.write }
    assert.strictEqual(yield* list([], ofEnvironment), 0)
    assert.strictEqual(yield* list(other, ofEnvironment), 5)
    assert.strictEqual(yield* list(other, { CAUSEWAY_URL: "", CAUSEWAY_TOKEN: keys.write }), 0)
  })
})

/** A user without an entry in the database of users, for example in a container. */
const unknownUser = Effect.acquireRelease(
  Effect.sync(() => {
    const { homedir, userInfo } = os
    const unknown = (): never => {
      throw new Error("uv_os_homedir returned ENOENT (no such file or directory)")
    }
    Object.assign(os, { homedir: unknown, userInfo: unknown })
    syncBuiltinESMExports()
    return { homedir, userInfo }
  }),
  known =>
    Effect.sync(() => {
      Object.assign(os, known)
      syncBuiltinESMExports()
    })
)

const withEnvironment = (variables: Readonly<Record<string, string>>) =>
  Effect.withConfigProvider(ConfigProvider.fromMap(new Map(Object.entries(variables))))

describe("profiles of a user that the system does not know", () => {
  test.scoped("are looked for below the root, and read where they are named", function* () {
    const file = join(yield* temporaryDirectory, "profiles.json")
    writeFileSync(file, '{"default":{"url":"http://127.0.0.1:1"}}')
    chmodSync(file, 0o600)
    yield* unknownUser
    assert.strictEqual(yield* withEnvironment({})(Connection.profilesPath), "/.config/causeway/profiles.json")
    const found = yield* withEnvironment({ CAUSEWAY_PROFILES: file })(Connection.loadProfile(Option.none()))
    assert.deepStrictEqual(found, { url: "http://127.0.0.1:1" })
  })
})

describe("profiles that cannot be reached", () => {
  test.scoped("are none, unless one is named", function* () {
    const directory = yield* temporaryDirectory
    const file = join(directory, "file")
    writeFileSync(file, "")
    const below = withEnvironment({ CAUSEWAY_PROFILES: join(file, "profiles.json") })
    assert.deepStrictEqual(yield* below(Connection.loadProfile(Option.none())), {})
    const { message } = yield* Effect.flip(below(Connection.loadProfile(Option.some("mine"))))
    assert.include(message, 'There is no profile "mine"')
  })

  it.scoped.skipIf(process.getuid?.() !== 0)("as in the home of another user, stop no command", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      writeFileSync(join(directory, "profiles.json"), '{"default":{"url":"http://127.0.0.1:1"}}', { mode: 0o600 })
      chmodSync(directory, 0o700)
      yield* Effect.acquireRelease(
        Effect.sync(() => process.seteuid?.(65534)),
        () => Effect.sync(() => process.seteuid?.(0))
      )
      const there = withEnvironment({ CAUSEWAY_PROFILES: join(directory, "profiles.json") })
      assert.deepStrictEqual(yield* there(Connection.loadProfile(Option.none())), {})
      const { message } = yield* Effect.flip(there(Connection.loadProfile(Option.some("mine"))))
      assert.match(message, /profiles\.json cannot be read: EACCES/)
    })
  )
})
