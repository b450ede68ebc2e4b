/** `causeway export`, to files and to pipes. */
import {
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { join } from "node:path"
import { assert, layer } from "@effect/vitest"
import { Effect, Option } from "effect"
import { Changes } from "../../src/Simulator/Changes.ts"
import { onlyLong } from "../Scale.ts"
import { proxy } from "./Proxy.ts"
import { call, jsonOf, linesOf, run, Setting, layer as setting } from "./Setting.ts"

const keysIn = (text: string) => linesOf(text).map(({ key }) => key)

layer(setting, { excludeTestServices: true })("causeway export", it => {
  it.effect("writes what import reads", () =>
    Effect.gen(function* () {
      const { client, files } = yield* Setting
      yield* client.set("cli/from", "a", "x")
      yield* client.set("cli/from", "b", "y", { ttlMs: 3_600_000 })
      const file = join(files, "from.ndjson")
      const done = yield* call(["export", "cli/from", "--output", file])
      assert.deepStrictEqual([done.stderr, jsonOf(done.stdout)], ["", { entries: 2, file, resumedAtLine: 0 }])
      assert.strictEqual(statSync(file).mode & 0o777, 0o600)
      assert.strictEqual((yield* call(["export", "cli/from", "--output", file])).code, 2)
      assert.deepStrictEqual(
        readdirSync(files).filter(name => name.startsWith("from")),
        ["from.ndjson"]
      )
      const piped = yield* run(["export", "cli/from", "cli/from"])
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
  )

  onlyLong(it.scoped)("to a file is refused while another one is in progress, and does not disturb it", () =>
    Effect.gen(function* () {
      const { client, files, url } = yield* Setting
      yield* client.set("cli/twice1", "a", 1)
      yield* client.set("cli/twice2", "b", 2)
      const changes = new Changes()
      let waiting = 0
      let release = () => {}
      const held = new Promise<"pass">(resolve => {
        release = () => resolve("pass")
      })
      const slow = yield* proxy(
        () => url,
        request => {
          if (!request.url?.startsWith("/api/v1/kv/cli%2Ftwice2")) return "pass"
          waiting++
          changes.notify()
          return held
        }
      )
      const file = join(files, "twice.ndjson")
      const args = ["export", "--output", file]
      const first = yield* Effect.fork(call([...args, "cli/twice1", "cli/twice2"], { CAUSEWAY_URL: slow }))
      yield* changes.until(() => (waiting > 0 ? Option.some(undefined) : Option.none()))
      for (const more of [[], ["--force"], ["--resume"], ["--restart"]]) {
        // The lock is of the process.
        const second = yield* run([...args, "cli/twice1", ...more])
        assert.deepStrictEqual(
          [second.code, second.stderr],
          [2, `Another export to ${file} is in progress\nWait until it has ended, or give another name.\n`]
        )
      }
      release()
      assert.strictEqual((yield* first).stderr, "")
      assert.deepStrictEqual(keysIn(readFileSync(file, "utf8")), ["a", "b"])
      assert.isFalse(existsSync(`${file}.export`))
    })
  )

  it.scoped("does not replace a file without --force, even if it was made in the meantime", () =>
    Effect.gen(function* () {
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
      const exporting = (...more: ReadonlyArray<string>) =>
        call(["export", "cli/made", "--output", file, ...more], { CAUSEWAY_URL: making })
      const refused = yield* exporting()
      assert.deepStrictEqual(
        [refused.code, refused.stderr],
        [2, `${file} exists already\n--force replaces it. 1 entries are exported; continue with --resume.\n`]
      )
      assert.strictEqual(readFileSync(file, "utf8"), "of another program")
      assert.strictEqual((yield* exporting("--resume")).code, 2)
      assert.strictEqual((yield* exporting("--resume", "--force")).code, 0)
      assert.deepStrictEqual(keysIn(readFileSync(file, "utf8")), ["a"])
      assert.isFalse(existsSync(`${file}.export`))
      // What a link leads to is replaced, and nothing that is no file.
      const link = join(files, "link.ndjson")
      symlinkSync(file, link)
      yield* client.set("cli/made", "b", 1)
      assert.strictEqual((yield* call(["export", "--output", link, "--force", "cli/made"])).code, 0)
      assert.isTrue(lstatSync(link).isSymbolicLink())
      assert.deepStrictEqual(keysIn(readFileSync(file, "utf8")), ["a", "b"])
      const directory = yield* call(["export", "--output", files, "--force", "cli/made"])
      assert.deepStrictEqual([directory.code, directory.stderr.includes("it is not a file")], [1, true])
      // Other files in a directory of this name are kept.
      const other = join(files, "other.ndjson.export")
      mkdirSync(other)
      writeFileSync(join(other, "notes"), "mine")
      const strange = yield* call(["export", "cli/made", "--output", join(files, "other.ndjson"), "--restart"])
      assert.deepStrictEqual([strange.code, strange.stderr.includes("does not belong to an export")], [2, true])
      assert.deepStrictEqual(readdirSync(other), ["notes"])
    })
  )

  it.effect("refuses invalid options and targets", () =>
    Effect.gen(function* () {
      const { files } = yield* Setting
      for (const [args, message] of [
        [["--resume"], /^--resume requires --output\n/],
        [["--output", join(files, "x"), "--resume", "--restart"], /^--resume and --restart exclude each other/],
        [["--output", join(files, "x"), "--retry-for", "-1"], /^--retry-for must be 0 or more/],
        [["--output", join(files, "nowhere", "x")], /x cannot be written: ENOENT/]
      ] as const) {
        assert.match((yield* call(["export", "n", ...args])).stderr, message)
      }
      assert.isFalse(existsSync(join(files, "x.export")))
    })
  )

  it.effect("and import show progress on a terminal", () =>
    Effect.gen(function* () {
      const { files } = yield* Setting
      const file = join(files, "few.ndjson")
      writeFileSync(file, '{"namespace":"cli/few","key":"k","value":1}\n')
      const { code, stdout } = yield* run(["import", file], { isTerminal: true })
      assert.strictEqual(code, 0, stdout)
      // The pseudo-terminal has no size.
      assert.match(stdout, /#{30} 100 % {2}1 entries, [^…]*\r\n/)
      assert.match(stdout, /1 entries written in \d/)
      const exported = yield* run(["export", "cli/few", "--prefix", "k", "--output", join(files, "out")], {
        isTerminal: true
      })
      assert.strictEqual(exported.code, 0, exported.stdout)
      assert.match(exported.stdout, /100 % {2}1 entries/)
    })
  )
})
