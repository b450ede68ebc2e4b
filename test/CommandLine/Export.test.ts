/** `causeway export`, to files and to pipes. */
import { execFile } from "node:child_process"
import { existsSync, lstatSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, layer } from "@effect/vitest"
import { Effect, Option } from "effect"
import { Changes } from "../../src/Simulator/Changes.ts"
import { isLong, onlyLong } from "../Scale.ts"
import * as Compiled from "../service/Compiled.ts"
import { testsOf } from "../Tests.ts"
import { type Fate, proxy } from "./Proxy.ts"
import { call, jsonOf, linesOf, run, Setting, serve, layer as setting, start } from "./Setting.ts"

const keysIn = (text: string) => linesOf(text).map(({ key }) => key)

/** Fills two namespaces, one of them with three pages. */
const fill = (name: string) =>
  Effect.gen(function* () {
    const { client } = yield* Setting
    const set = (key: string) => ({ op: "set", namespace: `${name}/1`, key, value: `of ${key}` }) as const
    for (const part of ["a", "b", "c"]) {
      yield* client.batch(
        Array.from({ length: part === "c" ? 500 : 1000 }, (_, index) => set(`${part}${String(index).padStart(3, "0")}`))
      )
    }
    for (const key of ["a", "b"]) yield* client.set(`${name}/2`, key, 1)
    return [`${name}/1`, `${name}/2`] as const
  })

/** A service of which each request for entries behind the first `pages` of them meets with `fate`. */
const failing = (target: string, pages: number) =>
  Effect.gen(function* () {
    const changes = new Changes()
    const state = { pages, fate: "hang" as Fate, met: 0, target }
    const url = yield* proxy(
      () => state.target,
      request => {
        if (!/^\/api\/v1\/kv\/[^?]/.test(request.url ?? "") || --state.pages >= 0) return "pass"
        state.met++
        changes.notify()
        return state.fate
      }
    )
    const met = (count: number) => changes.until(() => (state.met >= count ? Option.some(undefined) : Option.none()))
    return { state, url, met }
  })

layer(setting, { excludeTestServices: true })("causeway export", it => {
  const test = testsOf(it)
  test.effect("writes what import reads", function* () {
    const { client, files } = yield* Setting
    yield* client.set("cli/from", "a", "x")
    yield* client.set("cli/from", "b", "y", { ttlMs: 3_600_000 })
    const file = join(files, "from.ndjson")
    const done = yield* call(["export", "cli/from", "--output", file])
    assert.deepStrictEqual([done.stderr, jsonOf(done.stdout)], ["", { entries: 2, file }])
    assert.strictEqual(statSync(file).mode & 0o777, 0o600)
    assert.strictEqual((yield* call(["export", "cli/from", "--output", file])).code, 2)
    assert.deepStrictEqual(
      readdirSync(files).filter(name => name.startsWith("from")),
      ["from.ndjson"]
    )
    const piped = yield* call(["export", "cli/from", "cli/from"])
    assert.strictEqual(piped.stdout, readFileSync(file, "utf8"))
    const everything = yield* call(["export"])
    assert.include(everything.stdout, piped.stdout)
    yield* client.set("cli/to", "a", "there")
    const skipped = yield* run(["import", "--namespace", "cli/to", "--existing", "skip"], {
      input: `${piped.stdout}{"namespace":"cli/to","key":"late","value":1,"expiresAt":1}\n`
    })
    assert.deepStrictEqual(jsonOf(skipped.stdout), { written: 1, skipped: 1, expired: 1, resumedAtLine: 0 })
    const listed = linesOf((yield* call(["kv", "list", "cli/to"])).stdout)
    assert.deepStrictEqual(
      listed.map(({ expiresAt, key, value }) => [key, value, expiresAt !== null]),
      [
        ["a", "there", false],
        ["b", "y", true]
      ]
    )
    const empty = join(files, "empty.ndjson")
    assert.strictEqual((yield* call(["export", "cli/nothing", "--output", empty])).code, 0)
    assert.strictEqual(readFileSync(empty, "utf8"), "")
    const nothing = yield* call(["export", "cli/nothing"])
    assert.deepStrictEqual(nothing, { code: 0, stdout: "", stderr: "There are no such entries." })
  })

  test.scoped("does not replace a file without --force, even if it was made in the meantime", function* () {
    const { client, files, url } = yield* Setting
    yield* client.set("cli/made", "a", 1)
    const file = join(files, "made.ndjson")
    const making = yield* proxy(
      () => url,
      request => {
        if (request.url?.startsWith("/api/v1/kv/cli%2Fmade")) writeFileSync(file, "of another program")
        return "pass"
      }
    )
    const exporting = call(["export", "cli/made", "--output", file], { CAUSEWAY_URL: making })
    for (const _ of ["made in the meantime", "there from the start"]) {
      const refused = yield* exporting
      assert.deepStrictEqual([refused.code, refused.stderr], [2, `${file} exists already\n--force replaces it.\n`])
      assert.strictEqual(readFileSync(file, "utf8"), "of another program")
    }
    // What a link leads to is replaced, and nothing that is no file.
    const link = join(files, "link.ndjson")
    symlinkSync(file, link)
    yield* client.set("cli/made", "b", 1)
    assert.strictEqual((yield* call(["export", "--output", link, "--force", "cli/made"])).code, 0)
    assert.isTrue(lstatSync(link).isSymbolicLink())
    assert.deepStrictEqual(keysIn(readFileSync(file, "utf8")), ["a", "b"])
    const directory = yield* call(["export", "--output", files, "--force", "cli/made"])
    assert.deepStrictEqual([directory.code, directory.stderr.includes("it is not a file")], [1, true])
    assert.deepStrictEqual(
      readdirSync(files).filter(name => name.endsWith(".part")),
      []
    )
  })

  test.scoped("leaves nothing if it is interrupted", function* () {
    const { client, files, url } = yield* Setting
    yield* client.set("cli/stopped/1", "a", 1)
    yield* client.set("cli/stopped/2", "a", 1)
    const file = join(files, "stopped.ndjson")
    const service = yield* failing(url, 1)
    const args = ["export", "cli/stopped/1", "cli/stopped/2", "--output", file]
    const stopped = yield* start(args, { env: { CAUSEWAY_URL: service.url } })
    yield* service.met(1)
    const [draft = ""] = readdirSync(files).filter(name => name.startsWith("stopped"))
    assert.deepStrictEqual(keysIn(readFileSync(join(files, draft), "utf8")), ["a"])
    yield* stopped.signal("SIGTERM")
    assert.deepStrictEqual(yield* stopped.ended, { code: 143, stdout: "", stderr: "" })
    assert.isFalse(existsSync(file) || existsSync(join(files, draft)))
  })

  onlyLong(test.scoped)("continues by itself when the service has recovered", function* () {
    const { files, url } = yield* Setting
    const namespaces = yield* fill("cli/back")
    const file = join(files, "back.ndjson")
    const service = yield* failing(url, 2)
    service.state.fate = "close"
    const args = ["export", ...namespaces]
    const env = { CAUSEWAY_URL: service.url }
    const exporting = yield* Effect.fork(call([...args, "--output", file], env))
    yield* service.met(2)
    service.state.pages = 100
    const done = yield* exporting
    assert.match(done.stderr, /^[^\n]+\. Trying again\.$/)
    assert.deepStrictEqual(jsonOf(done.stdout), { entries: 2502, file })
    const whole = yield* call(args)
    assert.strictEqual(readFileSync(file, "utf8"), whole.stdout)
    // So does an export to a pipe.
    service.state.pages = 1
    service.state.met = 0
    const piping = yield* Effect.fork(call(args, env))
    yield* service.met(1)
    service.state.pages = 100
    assert.strictEqual((yield* piping).stdout, whole.stdout)
  })

  test.scoped("does not mix entries of two stores", function* () {
    const { files, url } = yield* Setting
    const [namespace] = yield* fill("cli/logs")
    const file = join(files, "logs.ndjson")
    const service = yield* failing(url, 1)
    const args = ["export", namespace, "--output", file]
    const env = { CAUSEWAY_URL: service.url }
    const other = yield* serve
    const exporting = yield* Effect.fork(call(args, env))
    service.state.fate = "close"
    yield* service.met(1)
    service.state.target = other
    service.state.pages = 100
    const ended = yield* exporting
    assert.strictEqual(ended.code, 1)
    assert.match(ended.stderr, /The store has been restored or replaced during the export\nExport again\.\n$/)
    assert.isFalse(existsSync(file))
  })

  onlyLong(test.scoped)("leaves nothing if the disk is full", function* () {
    const { env, files } = yield* Setting
    const [namespace] = yield* fill("cli/full")
    const file = join(files, "full.ndjson")
    const args = ["export", namespace, "--output", file]
    const full = yield* Effect.async<{ readonly code: unknown; readonly stderr: string }>(resume => {
      // The second page does not fit into the file.
      const script = 'ulimit -f 512; exec "$@"'
      execFile(
        "sh",
        ["-c", script, "sh", process.execPath, Compiled.program("main"), ...args],
        { env: { PATH: process.env.PATH, ...env } },
        (error, _, stderr) => resume(Effect.succeed({ code: error?.code, stderr }))
      )
    })
    assert.strictEqual(full.code, 1)
    assert.match(full.stderr, /^\S+ cannot be written: EFBIG[^\n]*\n$/)
    assert.deepStrictEqual(
      readdirSync(files).filter(name => name.startsWith("full")),
      []
    )
  })

  test.effect("and import show progress on a terminal", function* () {
    const { files } = yield* Setting
    const file = join(files, "few.ndjson")
    writeFileSync(file, '{"namespace":"cli/few","key":"k","value":1}\n')
    const { code, stdout } = yield* run(["import", file], { isTerminal: true })
    assert.strictEqual(code, 0, stdout)
    // The pseudo-terminal has no size.
    assert.match(stdout, /#{30} 100 % {2}1 entries, [^…]*\r\n/)
    assert.match(stdout, /1 entries written in \d/)
    // They share their progress bar.
    if (!isLong) return
    const exported = yield* run(["export", "cli/few", "--prefix", "k", "--output", join(files, "out")], {
      isTerminal: true
    })
    assert.strictEqual(exported.code, 0, exported.stdout)
    assert.match(exported.stdout, /100 % {2}1 entries/)
  })
})
