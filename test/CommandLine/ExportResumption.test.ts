/** An export that was interrupted and is resumed. */
import { execFile } from "node:child_process"
import {
  appendFileSync,
  copyFileSync,
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  writeFileSync
} from "node:fs"
import { join } from "node:path"
import { assert, layer } from "@effect/vitest"
import { Effect, Option } from "effect"
import { make } from "../../src/EffectClient/Client.ts"
import { Changes } from "../../src/Simulator/Changes.ts"
import { keys } from "../Harness.ts"
import { onlyLong } from "../Scale.ts"
import * as Compiled from "../service/Compiled.ts"
import { type Fate, proxy } from "./Proxy.ts"
import { call, jsonOf, linesOf, run, Setting, serve, layer as setting, start } from "./Setting.ts"

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

const namesOf = (text: string) => linesOf(text).map(({ key }) => key)

layer(setting, { excludeTestServices: true })("an export that was interrupted", it => {
  it.scoped("continues where it was killed, stopped, or lost the service", () =>
    Effect.gen(function* () {
      const { client, files, url } = yield* Setting
      const namespaces = yield* fill("cli/resumed")
      const file = join(files, "resumed.ndjson")
      const directory = `${file}.export`
      const entries = join(directory, "entries.ndjson")
      const args = ["export", ...namespaces, "--output", file]
      const service = yield* failing(url, 1)
      const env = { CAUSEWAY_URL: service.url }
      const complete = (yield* call(args.slice(0, 3))).stdout

      const killed = yield* start(args, { env })
      yield* service.met(1)
      yield* killed.signal("SIGKILL")
      yield* killed.ended
      assert.isFalse(existsSync(file))
      assert.strictEqual(namesOf(readFileSync(entries, "utf8")).length, 1000)
      // In the middle of a line, and of a character.
      appendFileSync(entries, Buffer.from('{"namespace":"cli/resumed/1","key":"b000","value":"é').subarray(0, -1))

      const unfinished = `An export to ${file} was not finished\nContinue with --resume, or start over with --restart.\n`
      for (const more of [[], ["--force"]]) {
        const refused = yield* call([...args, ...more], env)
        assert.deepStrictEqual([refused.code, refused.stderr], [2, unfinished])
      }
      const other = `${directory} belongs to another export: `
      for (const [others, from, message] of [
        [[...args.slice(0, 2), "--output", file], service.url, "the namespaces were cli/resumed/1, cli/resumed/2"],
        [["export", "--output", file], service.url, "the namespaces were cli/resumed/1, cli/resumed/2"],
        [[...args, "--prefix", "a"], service.url, 'the prefix was ""'],
        [args, url, `the service was ${service.url}`]
      ] as const) {
        const refused = yield* call([...others, "--resume"], { CAUSEWAY_URL: from })
        assert.deepStrictEqual(
          [refused.code, refused.stderr],
          [2, `${other}${message}\nRemove it, or start over with --restart.\n`]
        )
      }

      service.state.pages = 1
      const stopped = yield* start([...args, "--resume"], { env })
      yield* service.met(2)
      yield* stopped.signal("SIGINT")
      // The page starts with the last existing entry.
      assert.deepStrictEqual(yield* stopped.ended, {
        code: 130,
        stdout: "",
        stderr: "1,999 entries are exported; continue with --resume.\n"
      })

      service.state.fate = "close"
      service.state.pages = 0
      const lost = yield* call([...args, "--resume", "--retry-for", "0"], env)
      assert.strictEqual(lost.code, 6)
      assert.match(
        lost.stderr,
        /^http.* cannot be reached: .*\n.* 1,999 entries are exported; continue with --resume\.\n$/
      )

      // Entries after the last one are exported as they are now, those before it as they were.
      yield* client.set(namespaces[0], "a000", "later")
      yield* client.set(namespaces[0], "c000", "later")
      yield* client.delete(namespaces[0], "a001")
      yield* client.delete(namespaces[0], "b998")
      yield* client.delete(namespaces[0], "c001")
      service.state.pages = 100
      const resumed = yield* call([...args, "--resume"], env)
      assert.deepStrictEqual(
        [resumed.stderr, jsonOf(resumed.stdout)],
        ["", { entries: 2501, file, resumedAtLine: 1999 }]
      )
      const [before, after] = [linesOf(complete), linesOf(readFileSync(file, "utf8"))]
      assert.deepStrictEqual(
        after.map(({ key, value }) => [key, value]),
        before.filter(({ key }) => key !== "c001").map(({ key, value }) => [key, key === "c000" ? "later" : value])
      )
      assert.isFalse(existsSync(directory))
      // A complete file is not resumed.
      const again = yield* call([...args, "--resume"], env)
      assert.deepStrictEqual([again.code, again.stderr], [2, `${file} exists already\n--force replaces it.\n`])
    })
  )

  onlyLong(it.scoped)("continues by itself when the service has recovered", () =>
    Effect.gen(function* () {
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
      assert.deepStrictEqual(jsonOf(done.stdout), { entries: 2502, file, resumedAtLine: 0 })
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
  )

  it.scoped("does not mix entries of two stores", () =>
    Effect.gen(function* () {
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
      assert.match(
        ended.stderr,
        /The store has been restored or replaced during the export\nStart over with --restart\.\n$/
      )
      const refused = yield* call([...args, "--resume"], env)
      assert.deepStrictEqual(
        [refused.code, refused.stderr.split("\n")[0]],
        [2, `${file}.export belongs to another export: the store has been restored or replaced since then`]
      )
      yield* Effect.flatMap(make({ baseUrl: other, token: keys.write }), client => client.set(namespace, "new", 1))
      assert.strictEqual((yield* call([...args, "--restart"], env)).code, 0)
      assert.deepStrictEqual(namesOf(readFileSync(file, "utf8")), ["new"])
    })
  )

  it.scoped("leaves no directory without entries, and continues after the valid part of a damaged file", () =>
    Effect.gen(function* () {
      const { client, files, url } = yield* Setting
      yield* client.set("cli/damaged/1", "a", 1)
      // The last two have another order in JavaScript.
      for (const key of ["a", "b", "\uffee", "\u{1f600}"]) yield* client.set("cli/damaged/2", key, 1)
      const file = join(files, "damaged.ndjson")
      const entries = join(`${file}.export`, "entries.ndjson")
      const args = ["export", "cli/damaged/1", "cli/damaged/2", "--output", file]
      const service = yield* failing(url, 0)
      const env = { CAUSEWAY_URL: service.url }
      const stopped = yield* start(args, { env })
      yield* service.met(1)
      yield* stopped.signal("SIGTERM")
      assert.deepStrictEqual(yield* stopped.ended, { code: 143, stdout: "", stderr: "" })
      assert.isFalse(existsSync(`${file}.export`))

      // A run that is refused before it has exported more leaves what there is.
      service.state.fate = "close"
      service.state.pages = 1
      assert.strictEqual((yield* call([...args, "--retry-for", "0"], env)).code, 6)
      const record = readFileSync(join(`${file}.export`, "export.json"))
      const whole = (yield* call(args.slice(0, 3))).stdout.split(/(?<=\n)/)
      const [a1 = "", a2 = "", b = "", c = "", d = ""] = whole
      service.state.pages = 100
      for (const [text, kept] of [
        ["", 0],
        [a1.slice(0, -1), 0],
        [`${a1}${a2}\u0000\u0000\n${c}`, 2],
        [`${a1}${a2}${b}${b}`, 3],
        [`${a1}${b.replace("cli/damaged/2", "cli/damaged/3")}`, 1],
        [`${a1}\n${a2}`, 1],
        [`${a1}${a2}${b}${c}${d}`, 5]
      ] as const) {
        mkdirSync(`${file}.export`, { recursive: true })
        writeFileSync(join(`${file}.export`, "export.json"), record)
        writeFileSync(entries, text)
        const resumed = yield* call([...args, "--resume", "--force"], env)
        assert.strictEqual(resumed.stderr, "")
        assert.deepInclude(jsonOf(resumed.stdout), { resumedAtLine: kept }, text)
        assert.strictEqual(readFileSync(file, "utf8"), whole.join(""))
      }
      // Without its record the origin of the entries is unknown.
      mkdirSync(`${file}.export`)
      writeFileSync(entries, a1)
      writeFileSync(join(`${file}.export`, "export.json"), "{")
      const unknown = yield* call([...args, "--resume", "--force"], env)
      assert.deepStrictEqual([unknown.code, unknown.stderr.includes("has no record of its export")], [2, true])
      assert.strictEqual(readFileSync(entries, "utf8"), a1)
      assert.strictEqual((yield* call([...args, "--restart", "--force"], env)).code, 0)
      assert.strictEqual(readFileSync(file, "utf8"), whole.join(""))
    })
  )

  it.scoped("is not taken for one that was not finished where it was killed when its file had its name", () =>
    Effect.gen(function* () {
      const { client, files } = yield* Setting
      yield* client.set("cli/named", "a", 1)
      const file = join(files, "named.ndjson")
      const args = ["export", "cli/named", "--output", file]
      assert.strictEqual((yield* call(args)).code, 0)
      for (const more of [[], ["--resume"]]) {
        copyFileSync(file, `${file}.before`)
        mkdirSync(`${file}.export`)
        linkSync(file, join(`${file}.export`, "entries.ndjson"))
        yield* client.set("cli/named", `b${more.length}`, 1)
        const refused = yield* call([...args, ...more])
        assert.deepStrictEqual([refused.code, refused.stderr.includes("exists already")], [2, true])
        const done = yield* call([...args, "--force", ...more])
        assert.deepInclude(jsonOf(done.stdout), { resumedAtLine: 0 }, done.stderr)
        assert.strictEqual(namesOf(readFileSync(file, "utf8")).length, 2 + more.length)
      }
      assert.deepStrictEqual(
        readdirSync(files).filter(name => name.startsWith("named")),
        ["named.ndjson", "named.ndjson.before"]
      )
    })
  )

  onlyLong(it.scoped)("continues once the disk has room", () =>
    Effect.gen(function* () {
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
      assert.match(
        full.stderr,
        /^\S+ cannot be written: EFBIG.*\n[12],000 entries are exported; continue with --resume\.\n$/
      )
      const resumed = yield* call([...args, "--resume"])
      assert.deepStrictEqual([resumed.stderr, resumed.code], ["", 0])
      assert.strictEqual(namesOf(readFileSync(file, "utf8")).length, 2500)
    })
  )

  onlyLong(it.scoped)("shows the progress of the earlier run", () =>
    Effect.gen(function* () {
      const { files, url } = yield* Setting
      const [namespace] = yield* fill("cli/shown")
      const file = join(files, "shown.ndjson")
      const service = yield* failing(url, 2)
      service.state.fate = "close"
      const args = ["export", namespace, "--output", file]
      const env = { CAUSEWAY_URL: service.url }
      assert.strictEqual((yield* call([...args, "--retry-for", "0"], env)).code, 6)
      service.state.pages = 100
      const shown = yield* run([...args, "--resume"], { env, isTerminal: true })
      assert.strictEqual(shown.code, 0, shown.stdout)
      // The first line that is drawn, and the last one.
      assert.match(shown.stdout, /^[^%]* 80 % {2}0 entries/)
      assert.match(shown.stdout, /100 % {2}500 entries/)
      assert.include(shown.stdout, `2,500 entries are in ${file}`)
    })
  )
})
