/** The commands as processes against one running service, in pipes and on pseudo-terminals. */
import { once } from "node:events"
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import * as Http from "node:http"
import type { AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { assert, layer } from "@effect/vitest"
import { Clock, Context, Effect, Layer, Option, type Scope, Stream } from "effect"
import * as Client from "../../src/EffectClient/Client.ts"
import { Changes } from "../../src/Simulator/Changes.ts"
import * as Simulator from "../../src/Simulator/Simulator.ts"
import { secret, token } from "../Gateway/survival/Token.ts"
import * as Environment from "../service/Environment.ts"
import * as Service from "../service/Service.ts"
import * as InProcess from "./InProcess.ts"
import * as Program from "./Program.ts"

/** A service, and a directory for files of the user. */
class Setting extends Context.Tag("causeway/test/CommandLine/Setting")<
  Setting,
  {
    readonly url: string
    /** What the user's environment has. */
    readonly env: Readonly<Record<string, string>>
    readonly files: string
    readonly client: Client.Service
  }
>() {}

const setting = Layer.scoped(
  Setting,
  Effect.gen(function* () {
    const simulator = yield* Simulator.make({ seed: "cli", pace: "1 millis" })
    const directory = yield* Environment.temporaryDirectory
    const { url } = yield* Service.start({
      directory,
      env: {
        AGENT_PLATFORM_URL: simulator.platformUrl,
        GATEWAY_JWT_SECRET: secret,
        KV_AGENT_API_KEY: "key-that-reads",
        LIMIT_BODY_BYTES: String(256 * 1024)
      }
    })
    const files = yield* Effect.acquireRelease(
      Effect.sync(() => mkdtempSync(join(tmpdir(), "causeway-cli-"))),
      files => Effect.sync(() => rmSync(files, { recursive: true }))
    )
    const env = { CAUSEWAY_URL: url, CAUSEWAY_TOKEN: Service.key, CAUSEWAY_SESSION_TOKEN: yield* token("acme") }
    return { url, env, files, client: yield* Client.make({ baseUrl: url, token: Service.key }) }
  })
).pipe(Layer.provide(Environment.layer), Layer.orDie)

/** Runs a command within this process, with the user's environment and without standard input. */
const call = (args: ReadonlyArray<string>, more: Readonly<Record<string, string>> = {}, isTerminal = false) =>
  Effect.flatMap(Setting, ({ env }) => InProcess.call(args, { ...env, ...more }, isTerminal))

/** Runs a command as a process, with the user's environment. */
const run = (args: ReadonlyArray<string>, options: Omit<Program.Options, "args"> = {}) =>
  Effect.flatMap(Setting, ({ env }) => Program.run({ ...options, args, env: { ...env, ...options.env } }))

const jsonOf = (text: string): unknown => JSON.parse(text)
const linesOf = (text: string): ReadonlyArray<Record<string, unknown>> =>
  text
    .split("\n")
    .filter(line => line !== "")
    .map(line => JSON.parse(line))

/** A server between the command and the service. */
const proxy = (
  target: string,
  onRequest: (
    request: Http.IncomingMessage,
    body: string
  ) => "pass" | "hang" | "lose the answer" | "answer as another" | Promise<"pass">
): Effect.Effect<string, never, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(
      Effect.promise(async () => {
        const server = Http.createServer(async (request, response) => {
          const chunks: Array<Buffer> = []
          for await (const chunk of request) chunks.push(Buffer.from(chunk))
          const body = Buffer.concat(chunks)
          const fate = await onRequest(request, body.toString())
          if (fate === "hang") return
          if (fate === "answer as another") {
            response.end("<html></html>")
            return
          }
          const { authorization = "", "idempotency-key": key } = request.headers
          const answer = await fetch(target + request.url, {
            method: request.method ?? "GET",
            headers: {
              authorization,
              "content-type": "application/json",
              ...(typeof key === "string" && { "idempotency-key": key })
            },
            ...(body.length > 0 && { body })
          })
          if (fate === "lose the answer") {
            await answer.arrayBuffer()
            response.destroy()
            return
          }
          const headers = ["kv-count", "kv-epoch", "kv-last-seq", "link"].flatMap(name => {
            const value = answer.headers.get(name)
            return value === null ? [] : [[name, value] as const]
          })
          response.writeHead(answer.status, { "content-type": "application/json", ...Object.fromEntries(headers) })
          response.end(await answer.text())
        }).listen(0, "127.0.0.1")
        await once(server, "listening")
        return server
      }),
      server =>
        Effect.sync(() => {
          server.closeAllConnections()
          server.close()
        })
    ),
    server => `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  )

layer(setting, { excludeTestServices: true, timeout: 60_000 })("causeway", it => {
  it.effect("sets, gets and deletes entries, and keeps the text of values", () =>
    Effect.gen(function* () {
      const value = '{"b":12345678901234567890,"1":2.0}'
      const set = yield* run(["kv", "set", "cli/kv", "k", "--actor", "anna", value])
      assert.strictEqual(set.stderr, "")
      assert.include(set.stdout, `"value":${value},"version":1,"updatedBy":"anna"`)
      const got = yield* run(["kv", "get", "cli/kv", "k", "--value-only"])
      assert.strictEqual(got.stdout, `${value}\n`)
      const piped = yield* run(["kv", "set", "cli/kv", "text", "--string"], { input: "two\nlines\n" })
      assert.include(piped.stdout, '"value":"two\\nlines"')
      const conflict = yield* call(["kv", "set", "cli/kv", "k", "--if-version=7", "-5"])
      assert.strictEqual(conflict.code, 4)
      assert.match(conflict.stderr, /is at version 1\n.*--if-version/)
      assert.deepStrictEqual(jsonOf((yield* call(["kv", "delete", "cli/kv", "k"])).stdout), { deleted: true })
      const absent = yield* call(["kv", "get", "cli/kv", "k"])
      assert.deepStrictEqual([absent.code, absent.stdout], [3, ""])
      assert.match(absent.stderr, /There is no entry k in cli\/kv\n.*kv list/)
      const bad = yield* call(["kv", "set", "cli/kv", "k", "hello"])
      assert.strictEqual(bad.code, 2)
      assert.match(bad.stderr, /not JSON.*\n.*--string/)
    })
  )

  it.effect("shows a table on a terminal, in which no control character of a name or a value is raw", () =>
    Effect.gen(function* () {
      const { client } = yield* Setting
      yield* client.set("cli/table", "\u001b[2J\u0007", "\u009b31m \u202e\u200f\u061c")
      yield* client.set("cli/table", "plain", { a: 1 })
      const table = yield* run(["kv", "list", "cli/table"], { isTerminal: true })
      assert.strictEqual(table.code, 0)
      assert.match(table.stdout, /^KEY +VERSION +UPDATED +BY +EXPIRES +VALUE\r\n/)
      assert.match(table.stdout, /\nplain +1 +\d{4}-.* api +never +\{"a":1\}\r\n/)
      const one = yield* call(["kv", "get", "cli/table", "\u001b[2J\u0007"], {}, true)
      assert.match(one.stdout, /key +␛\[2J␇/)
      for (const { stdout } of [table, one]) {
        assert.notMatch(stdout, /[\u0000-\u0009\u000b\u000c\u000e-\u001f\u007f-\u009f\u202e]/)
        assert.include(stdout, '"\\u009b31m \\u202e')
      }
      // JSON for a terminal has the same values, with escapes; for a program it has the same bytes.
      for (const args of [
        ["kv", "list", "cli/table", "--prefix", "\u001b"],
        ["kv", "get", "cli/table", "\u001b[2J\u0007"],
        ["kv", "get", "cli/table", "\u001b[2J\u0007", "--value-only"]
      ]) {
        const shown = yield* call([...args, "--json"], {}, true)
        assert.include(shown.stdout, '"\\u009b31m \\u202e\\u200f\\u061c"')
        const piped = yield* call(args)
        assert.include(piped.stdout, '"\u009b31m \u202e\u200f\u061c"')
        assert.deepStrictEqual(jsonOf(shown.stdout), jsonOf(piped.stdout))
      }
      const wanted = yield* call(["kv", "list", "cli/table", "--json", "--prefix", "p"], {}, true)
      assert.strictEqual(linesOf(wanted.stdout)[0]?.key, "plain")
    })
  )

  it.effect("lists a part of a namespace, backwards, without values, or only its number, and the namespaces", () =>
    Effect.gen(function* () {
      const { client } = yield* Setting
      for (const key of ["a", "b", "c", "d"]) yield* client.set("cli/part", key, 1)
      const keys = (...args: ReadonlyArray<string>) =>
        Effect.map(call(["kv", "list", "cli/part", ...args]), ({ stdout }) => linesOf(stdout).map(({ key }) => key))
      assert.deepStrictEqual(yield* keys("--start", "b", "--end", "d"), ["b", "c"])
      assert.deepStrictEqual(yield* keys("--reverse", "--limit", "3"), ["d", "c", "b"])
      const [first] = linesOf((yield* call(["kv", "list", "cli/part", "--keys-only"])).stdout)
      assert.deepStrictEqual([first?.key, first?.version, first !== undefined && "value" in first], ["a", 1, false])
      const table = yield* call(["kv", "list", "cli/part", "--keys-only", "--start", "d"], {}, true)
      assert.match(table.stdout, /^KEY +VERSION +UPDATED +BY +EXPIRES\nd +1 .* never\n$/)
      assert.strictEqual((yield* call(["kv", "list", "cli/part", "--count", "--end", "d"])).stdout, '{"count":3}\n')
      assert.strictEqual((yield* call(["kv", "list", "cli/none", "--count"], {}, true)).stdout, "0\n")
      const both = yield* call(["kv", "list", "cli/part", "--count", "--limit", "1"])
      assert.deepStrictEqual([both.code, both.stdout], [2, ""])

      yield* client.set("cli/part2", "a", 1)
      const listed = yield* call(["kv", "namespaces", "--prefix", "cli/part"])
      assert.strictEqual(listed.stdout, '{"namespace":"cli/part","count":4}\n{"namespace":"cli/part2","count":1}\n')
      assert.strictEqual(linesOf((yield* call(["kv", "namespaces", "--limit", "1"])).stdout).length, 1)
      const shown = yield* call(["kv", "namespaces", "--prefix", "cli/part"], {}, true)
      assert.strictEqual(shown.stdout, "NAMESPACE  ENTRIES\ncli/part         4\ncli/part2        1\n")
      const none = yield* call(["kv", "namespaces", "--prefix", "nowhere"], {}, true)
      assert.strictEqual(none.stdout, "There are no such namespaces.\n")
    })
  )

  it.scoped("deletes what starts with a prefix: after a question on a terminal, with --yes in a pipe", () =>
    Effect.gen(function* () {
      const { client, env } = yield* Setting
      const keys = Array.from({ length: 1001 }, (_, index) => `old-${index}`)
      const set = (key: string) => ({ op: "set", namespace: "cli/delete", key, value: 1 }) as const
      yield* client.batch(keys.slice(0, 1000).map(set))
      yield* client.batch([...keys.slice(1000), "new", "older"].map(set))
      const args = ["kv", "delete", "cli/delete", "--prefix", "old-"]
      const count = Effect.map(call(["kv", "list", "cli/delete", "--count"]), ({ stdout }) => jsonOf(stdout))
      const asked = yield* call(args)
      assert.strictEqual(asked.code, 2)
      assert.match(asked.stderr, /nothing was deleted\n--yes deletes 1,001 entries of cli\/delete/)
      for (const [answer, code] of [
        ["n\n", 1],
        ["\u0003", 130]
      ] as const) {
        const declining = yield* Program.start({ env, args, isTerminal: true })
        yield* declining.shows("[y/N] ")
        yield* declining.type(answer)
        assert.strictEqual((yield* declining.ended).code, code)
      }
      assert.deepStrictEqual(yield* count, { count: 1003 })
      const done = yield* call([...args, "--yes"])
      assert.deepStrictEqual(jsonOf(done.stdout), { deleted: true, count: 1001 })
      assert.deepStrictEqual(jsonOf((yield* call([...args, "--yes"])).stdout), { deleted: false, count: 0 })
      const agreeing = yield* Program.start({
        env,
        args: ["kv", "delete", "cli/delete", "--prefix", ""],
        isTerminal: true
      })
      yield* agreeing.shows("Delete 2 entries of cli/delete, which is all of them? [y/N] ")
      yield* agreeing.type("y\n")
      const agreed = yield* agreeing.ended
      assert.strictEqual(agreed.code, 0)
      assert.include(agreed.stdout, "Deleted: 2 entries")
      assert.deepStrictEqual(yield* count, { count: 0 })
      for (const wrong of [[], ["k", "--prefix", "p"], ["--prefix", "p", "--if-version", "1"]]) {
        assert.strictEqual((yield* call(["kv", "delete", "cli/delete", ...wrong])).code, 2)
      }
    })
  )

  it.scoped("deletes what the user has agreed to, and nothing that was written while the question stood", () =>
    Effect.gen(function* () {
      const { client, env, url } = yield* Setting
      const set = (key: string) => client.set("cli/agreed", key, 1)
      for (const key of ["a1", "a2", "a3", "a4", "b"]) yield* set(key)
      let batches = 0
      const between = yield* proxy(url, async ({ url = "" }) => {
        // After the list that follows the answer.
        if (url.endsWith("/batch") && ++batches === 1) await Effect.runPromise(set("a3"))
        return "pass" as const
      })
      const deleting = yield* Program.start({
        env: { ...env, CAUSEWAY_URL: between },
        args: ["kv", "delete", "cli/agreed", "--prefix", "a"],
        isTerminal: true
      })
      yield* deleting.shows("Delete 4 entries of cli/agreed with keys that start with a? [y/N] ")
      yield* set("a2")
      yield* set("a5")
      yield* deleting.type("y\n")
      const { code, stdout } = yield* deleting.ended
      assert.strictEqual(code, 0, stdout)
      assert.include(stdout, "Deleted: 2 entries; 3 entries stay, as they were written meanwhile")
      const left = linesOf((yield* call(["kv", "list", "cli/agreed"])).stdout).map(({ key }) => key)
      assert.deepStrictEqual(left, ["a2", "a3", "a5", "b"])
    })
  )

  it.scoped("tells how many entries were deleted before a failure", () =>
    Effect.gen(function* () {
      const { client, env, url } = yield* Setting
      const changes = new Changes()
      const set = (key: string) => ({ op: "set", namespace: "cli/half", key, value: 1 }) as const
      for (const half of ["a", "b"]) {
        yield* client.batch(Array.from({ length: 600 }, (_, index) => set(`${half}${index}`)))
      }
      let deletes = 0
      const losing = yield* proxy(url, ({ method }) => {
        if (method !== "DELETE") return "pass"
        deletes++
        changes.notify()
        return deletes === 2 ? "hang" : "pass"
      })
      const args = ["kv", "delete", "cli/half", "--prefix", "", "--yes", "--timeout", "1"]
      const failed = yield* call(args, { CAUSEWAY_URL: losing })
      assert.strictEqual(failed.code, 6)
      assert.match(failed.stderr, /^1,000 entries were deleted before this:/)
      yield* client.batch(Array.from({ length: 1000 }, (_, index) => set(`c${index}`)))
      deletes = 0
      const stopped = yield* Program.start({ env: { ...env, CAUSEWAY_URL: losing }, args: args.slice(0, -2) })
      yield* changes.until(() => (deletes === 2 ? Option.some(undefined) : Option.none()))
      yield* stopped.signal("SIGINT")
      assert.deepStrictEqual(yield* stopped.ended, { code: 130, stdout: "", stderr: "1,000 entries were deleted.\n" })
    })
  )

  it.scoped("watches: entries, then changes, each as it happens, until a signal or a closed pipe", () =>
    Effect.gen(function* () {
      const { client, env } = yield* Setting
      yield* client.set("cli/watch", "a1", 1)
      yield* client.set("cli/watch", "b1", 1)
      const watching = yield* Program.start({ env, args: ["kv", "watch", "cli/watch", "--prefix", "a"] })
      const updates = yield* Program.start({ env, args: ["kv", "watch", "cli/watch", "--updates-only"] })
      yield* watching.shows('"synced"')
      yield* updates.shows('"synced"')
      yield* client.set("cli/watch", "b2", 2)
      yield* client.set("cli/watch", "a2", 2)
      yield* watching.shows('"a2"')
      yield* updates.shows('"a2"')
      yield* watching.signal("SIGINT")
      const { code, stderr, stdout } = yield* watching.ended
      assert.deepStrictEqual([code, stderr], [130, ""])
      const types = linesOf(stdout).map(({ type }) => type)
      assert.deepStrictEqual(types, ["entry", "synced", "change"])
      yield* updates.abandonOutput
      yield* client.set("cli/watch", "a3", 3)
      yield* client.set("cli/watch", "a4", 4)
      const closed = yield* updates.ended
      assert.deepStrictEqual([closed.code, closed.stderr], [0, ""])
      assert.notInclude(closed.stdout, '"entry"')
    })
  )

  it.effect("tells a follower of a position that the log is another one", () =>
    Effect.gen(function* () {
      const ended = yield* call(["kv", "watch", "--from", "0", "--epoch", "another"])
      assert.strictEqual(ended.code, 1)
      assert.strictEqual(linesOf(ended.stdout)[0]?.type, "reset")
      assert.match(ended.stderr, /The log is another one.*\n.*--from \d+ --epoch/)
    })
  )

  it.effect("exports, and imports what was exported", () =>
    Effect.gen(function* () {
      const { client, files } = yield* Setting
      yield* client.set("cli/from", "a", "x")
      yield* client.set("cli/from", "b", "y", { ttlMs: 3_600_000 })
      const file = join(files, "from.ndjson")
      assert.strictEqual((yield* call(["export", "cli/from", "--output", file])).code, 0)
      assert.strictEqual(statSync(file).mode & 0o777, 0o600)
      assert.strictEqual((yield* call(["export", "cli/from", "--output", file])).code, 2)
      const piped = yield* run(["export", "cli/from"])
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
    })
  )

  it.effect("imports the lines before one that is wrong, and goes on once that is corrected", () =>
    Effect.gen(function* () {
      const { client, files } = yield* Setting
      const file = join(files, "broken.ndjson")
      const line = (key: string) => `{"key":"${key}","value":"é"}\n`
      const importing = (namespace: string, ...more: ReadonlyArray<string>) =>
        call(["import", file, "--namespace", namespace, ...more])
      const keys = (namespace: string) =>
        Effect.map(client.listKeys(namespace).pipe(Stream.runHead), page =>
          Option.getOrThrow(page).items.map(({ key, version }) => `${key} ${version}`)
        )
      const latin1 = Buffer.from(line("c"), "latin1")
      // What the command itself finds wrong, and what the service does.
      for (const [namespace, wrong, problem] of [
        ["cli/broken1", '{"key":', /^Line 4: it is not JSON/],
        ["cli/broken2", line(""), /^Line 4: key /],
        ["cli/broken3", latin1, /^Line 4: it is not UTF-8\n/]
      ] as const) {
        const start = `${line("a")}\n${line("b")}`
        writeFileSync(file, Buffer.concat([Buffer.from(start), Buffer.from(wrong)]))
        const refused = yield* importing(namespace)
        assert.strictEqual(refused.code, 1)
        assert.match(refused.stderr, problem)
        assert.match(refused.stderr, /\nCorrect it\. Lines 1 to 3 are imported; go on with --resume\.\n/)
        assert.deepStrictEqual(yield* keys(namespace), ["a 1", "b 1"])
        // A line before it is another one.
        writeFileSync(file, `${line("A")}\n${line("b")}${line("c")}`)
        const other = yield* importing(namespace, "--resume")
        assert.strictEqual(other.code, 2)
        assert.match(other.stderr, /the first 3 lines of the file were others\n.*--restart/)
        const elsewhere = yield* importing("cli/elsewhere", "--resume")
        assert.match(elsewhere.stderr, /the service or the options were others/)
        writeFileSync(file, `${start}${line("c")}${line("d")}`)
        const resumed = yield* importing(namespace, "--resume")
        assert.deepStrictEqual(
          [resumed.stderr, jsonOf(resumed.stdout)],
          ["", { written: 2, skipped: 0, expired: 0, resumedAtLine: 3 }]
        )
        assert.deepStrictEqual(yield* keys(namespace), ["a 1", "b 1", "c 1", "d 1"])
      }
      writeFileSync(file, '{"key":')
      assert.match((yield* importing("cli/broken4")).stderr, /^Line 1: .*\nCorrect it\.\n$/)
      const piped = yield* run(["import", "--namespace", "cli/broken5"], { input: `${line("a")}{` })
      assert.match(piped.stderr, /^Line 2: .*\n.*Lines 1 to 1 are imported; standard input cannot be resumed/)
      // A file that cannot be read is no defect.
      const unreadable = yield* call(["import", "/proc/self/mem", "--namespace", "n"])
      assert.strictEqual(unreadable.code, 2)
      assert.match(unreadable.stderr, /^\/proc\/self\/mem cannot be read: \S+/)
    })
  )

  it.effect("takes no text that is not UTF-8", () =>
    Effect.gen(function* () {
      const { files } = yield* Setting
      const file = join(files, "text")
      const set = (bytes: Buffer) => {
        writeFileSync(file, bytes)
        return call(["kv", "set", "cli/text", "k", "--string", "--file", file])
      }
      const refused = yield* set(Buffer.from("caf\xe9", "latin1"))
      assert.deepStrictEqual([refused.code, refused.stderr], [2, `${file}: it is not UTF-8\n\n`])
      // An editor's byte order mark is no part of the text.
      assert.include((yield* set(Buffer.from("\ufeffcafé"))).stdout, '"value":"café"')
    })
  )

  it.scoped("exports to one file twice at once: each copy is whole, and none is replaced unasked", () =>
    Effect.gen(function* () {
      const { client, files, url } = yield* Setting
      yield* client.set("cli/twice1", "a", 1)
      yield* client.set("cli/twice2", "b", 2)
      for (const force of [[], ["--force"]]) {
        const changes = new Changes()
        let waiting = 0
        let release = () => {}
        const held = new Promise<"pass">(resolve => {
          release = () => resolve("pass")
        })
        const slow = yield* proxy(url, request => {
          if (!request.url?.startsWith("/api/v1/kv/cli%2Ftwice2")) return "pass"
          waiting++
          changes.notify()
          return held
        })
        const file = join(files, `twice${force.length}.ndjson`)
        const args = ["export", "--output", file, ...force]
        const first = yield* Effect.fork(call([...args, "cli/twice1", "cli/twice2"], { CAUSEWAY_URL: slow }))
        yield* changes.until(() => (waiting > 0 ? Option.some(undefined) : Option.none()))
        assert.strictEqual((yield* call([...args, "cli/twice1"])).code, 0)
        release()
        const { code, stderr } = yield* first
        const lines = linesOf(readFileSync(file, "utf8")).map(({ key }) => key)
        if (force.length > 0) assert.deepStrictEqual([code, lines], [0, ["a", "b"]])
        else {
          assert.match(stderr, /is there already\n--force/)
          assert.deepStrictEqual([code, lines], [2, ["a"]])
        }
      }
      assert.deepStrictEqual(
        readdirSync(files).filter(name => name.startsWith("twice")),
        ["twice0.ndjson", "twice1.ndjson"]
      )
      // What a link leads to is replaced, and nothing that is no file.
      const link = join(files, "link.ndjson")
      symlinkSync(join(files, "twice1.ndjson"), link)
      assert.strictEqual((yield* call(["export", "--output", link, "--force", "cli/twice2"])).code, 0)
      assert.isTrue(lstatSync(link).isSymbolicLink())
      assert.deepStrictEqual(
        linesOf(readFileSync(join(files, "twice1.ndjson"), "utf8")).map(({ key }) => key),
        ["b"]
      )
      const directory = yield* call(["export", "--output", files, "--force", "cli/twice2"])
      assert.deepStrictEqual([directory.code, directory.stderr.includes("it is not a file")], [1, true])
    })
  )

  it.scoped("leaves nothing of an export that is interrupted", () =>
    Effect.gen(function* () {
      const { client, env, files, url } = yield* Setting
      yield* client.set("cli/stopped", "a", 1)
      const changes = new Changes()
      let isWaiting = false
      const between = yield* proxy(url, request => {
        if (!request.url?.startsWith("/api/v1/kv/cli%2Fnever")) return "pass"
        isWaiting = true
        changes.notify()
        return "hang"
      })
      const exporting = yield* Program.start({
        env: { ...env, CAUSEWAY_URL: between },
        args: ["export", "cli/stopped", "cli/never", "--output", join(files, "stopped.ndjson")]
      })
      yield* changes.until(() => (isWaiting ? Option.some(undefined) : Option.none()))
      const parts = () => readdirSync(files).filter(name => name.startsWith("stopped"))
      assert.match(parts().join(), /^stopped\.ndjson\.\w+\.part$/)
      yield* exporting.signal("SIGINT")
      assert.deepStrictEqual(yield* exporting.ended, { code: 130, stdout: "", stderr: "" })
      assert.deepStrictEqual(parts(), [])
    })
  )

  it.scoped("repeats a write whose answer is lost, and tells how to: it is applied once", () =>
    Effect.gen(function* () {
      const { files, url } = yield* Setting
      const keys: Array<string> = []
      let lost = 1
      const losing = yield* proxy(url, ({ headers }) => {
        keys.push(String(headers["idempotency-key"]))
        return --lost >= 0 ? "lose the answer" : "pass"
      })
      const file = join(files, "once.json")
      writeFileSync(file, '[{"op":"set","namespace":"cli/once","key":"b","value":1}]')
      const versions = (text: string) => [...text.matchAll(/"version":(\d+)/g)].map(([, version]) => version)
      for (const args of [
        ["kv", "set", "cli/once", "a", "1"],
        ["batch", file],
        ["kv", "delete", "cli/once", "a"]
      ]) {
        const isDelete = args.includes("delete")
        keys.length = 0
        lost = 1
        const failed = yield* call(args, { CAUSEWAY_URL: losing })
        assert.strictEqual(failed.code, 6, failed.stderr)
        const [, key = ""] = /with --idempotency-key (\S+) it can be repeated/.exec(failed.stderr) ?? []
        const again = yield* call([...args, "--idempotency-key", key])
        assert.deepStrictEqual([again.stderr, keys], ["", [key]])
        // The next write is another one, and goes on by itself.
        lost = 1
        const patient = yield* call([...args, "--patience", "30"], { CAUSEWAY_URL: losing })
        assert.strictEqual(patient.code, 0, patient.stderr)
        assert.match(patient.stderr, /Trying again\.$/)
        assert.deepStrictEqual([keys[1] === keys[2], keys[0] === keys[1]], [true, false])
        assert.deepStrictEqual(
          isDelete ? [again.stdout, patient.stdout] : [...versions(again.stdout), ...versions(patient.stdout)],
          isDelete ? ['{"deleted":true}\n', '{"deleted":false}\n'] : ["1", "2"]
        )
      }
      const wrong = yield* call(["kv", "set", "cli/once", "a", "1", "--idempotency-key", "é"])
      assert.match(wrong.stderr, /^idempotencyKey must be/)
      for (const more of [
        ["--idempotency-key", "k"],
        ["--patience", "1"]
      ]) {
        assert.strictEqual((yield* call(["kv", "delete", "cli/once", "--prefix", "", ...more])).code, 2)
      }
    })
  )

  it.scoped("goes on with an import that was killed, and writes nothing again that was recorded as done", () =>
    Effect.gen(function* () {
      const { client, env, files, url } = yield* Setting
      const file = join(files, "many.ndjson")
      const count = 1000
      const keyOf = (index: number) => `k${String(index).padStart(4, "0")}`
      writeFileSync(
        file,
        Array.from(
          { length: count },
          (_, index) => `{"namespace":"cli/many","key":"${keyOf(index)}","value":${index}.0}\n`
        ).join("")
      )
      let batches = 0
      let isHanging = true
      const changes = new Changes()
      const between = yield* proxy(url, request => {
        if (!request.url?.endsWith("/batch")) return "pass"
        batches++
        changes.notify()
        return batches > 4 && isHanging ? "hang" : "pass"
      })
      const mine = { ...env, CAUSEWAY_URL: between }
      const first = yield* Program.start({ env: mine, args: ["import", file, "--batch", "100"] })
      // The fifth batch gets no answer.
      yield* Effect.raceFirst(
        changes.until(() => (batches >= 5 ? Option.some(undefined) : Option.none())),
        Effect.flatMap(first.ended, ended => Effect.dieMessage(`The import ended: ${JSON.stringify(ended)}`))
      )
      yield* first.signal("SIGKILL")
      yield* first.ended
      assert.strictEqual(JSON.parse(readFileSync(`${file}.import`, "utf8")).line, 400)
      // It hangs again at the same batch, and a signal ends it.
      const second = yield* Program.start({ env: mine, args: ["import", file, "--batch", "100", "--resume"] })
      yield* changes.until(() => (batches >= 6 ? Option.some(undefined) : Option.none()))
      yield* second.signal("SIGINT")
      assert.deepStrictEqual(yield* second.ended, {
        code: 130,
        stdout: "",
        stderr: "Lines 1 to 400 are imported; go on with --resume.\n"
      })
      isHanging = false
      const refused = yield* call(["import", file], mine)
      assert.strictEqual(refused.code, 2)
      assert.match(refused.stderr, /line 400\n.*--resume.*--restart/)
      batches = 0
      const resumed = yield* Program.run({ env: mine, args: ["import", file, "--batch", "100", "--resume"] })
      assert.deepStrictEqual(jsonOf(resumed.stdout), { written: 600, skipped: 0, expired: 0, resumedAtLine: 400 })
      assert.strictEqual(batches, 6)
      assert.isFalse(existsSync(`${file}.import`))
      const page = Option.getOrThrow(yield* Stream.runHead(client.list("cli/many")))
      assert.deepStrictEqual(
        page.items.map(({ key, version }) => [key, version]),
        Array.from({ length: count }, (_, index) => [keyOf(index), 1])
      )
    })
  )

  it.effect("leaves to the service what has expired, wherever the clock of the user stands", () =>
    Effect.gen(function* () {
      const { client, files } = yield* Setting
      const now = Date.now()
      const minutes = (count: number) => now + count * 60_000
      const line = (key: string, expiresAt?: number) =>
        JSON.stringify({ namespace: "cli/clock", key, value: 1, expiresAt })
      for (const ahead of [-120, 120]) {
        const file = join(files, "clock.ndjson")
        const lines = [line("a", minutes(60)), line("b", minutes(-60)), line("b", minutes(90)), line("c"), line("d", 0)]
        writeFileSync(
          file,
          `${[...lines, line("e", minutes(-1)), '{"namespace":"cli/clock","key":"","value":1}'].join("\n")}\n`
        )
        const clock = Clock.make()
        const shifted: Clock.Clock = Object.assign(Object.create(clock), {
          currentTimeMillis: Effect.map(clock.currentTimeMillis, now => now + ahead * 60_000)
        })
        const importing = (...more: ReadonlyArray<string>) =>
          call(["import", file, "--existing", "skip", ...more]).pipe(Effect.withClock(shifted))
        // Errors count by the operations that were sent, and are told by the lines of the file.
        assert.match((yield* importing()).stderr, /^Line 7: .*key/)
        assert.strictEqual((yield* client.deletePrefix("cli/clock", "")).count, 3)
        writeFileSync(file, `${[...lines, line("e", minutes(-1))].join("\n")}\n`)
        const done = yield* importing("--restart")
        assert.deepStrictEqual(
          [done.stderr, jsonOf(done.stdout)],
          ["", { written: 3, skipped: 0, expired: 3, resumedAtLine: 0 }]
        )
        assert.strictEqual((yield* client.deletePrefix("cli/clock", "")).count, 3)
      }
    })
  )

  it.effect("finds out which entries are there, however large they are", () =>
    Effect.gen(function* () {
      const { client } = yield* Setting
      const large = "x".repeat(100 * 1024)
      for (const key of ["a", "b", "d", "e"]) yield* client.set("cli/large", key, large)
      const input = ["a", "b", "c", "d", "e", "c"]
        .map(key => `{"namespace":"cli/large","key":"${key}","value":1}\n`)
        .join("")
      const done = yield* run(["import", "--existing", "skip"], { input })
      assert.deepStrictEqual(
        [done.stderr, jsonOf(done.stdout)],
        ["", { written: 1, skipped: 5, expired: 0, resumedAtLine: 0 }]
      )
    })
  )

  it.effect("shows progress on a terminal", () =>
    Effect.gen(function* () {
      const { files } = yield* Setting
      const file = join(files, "few.ndjson")
      writeFileSync(file, '{"namespace":"cli/few","key":"k","value":1}\n')
      const { code, stdout } = yield* run(["import", file], { isTerminal: true })
      assert.strictEqual(code, 0, stdout)
      assert.match(stdout, /100 % {2}1 entries/)
      assert.match(stdout, /1 entries written in \d/)
      const exported = yield* run(["export", "cli/few", "--prefix", "k", "--output", join(files, "out")], {
        isTerminal: true
      })
      assert.strictEqual(exported.code, 0, exported.stdout)
      assert.match(exported.stdout, /100 % {2}1 entries/)
    })
  )

  it.effect("applies a batch, or nothing of it", () =>
    Effect.gen(function* () {
      const set = (key: string, more = "") => `{"op":"set","namespace":"cli/batch","key":"${key}","value":1.0${more}}`
      const done = yield* run(["batch"], { input: `[${set("a")},${set("b")}]` })
      assert.strictEqual(done.stdout, '{"ok":true,"results":[{"version":1},{"version":1}]}\n')
      const { files } = yield* Setting
      const file = join(files, "batch.ndjson")
      writeFileSync(file, `${set("c")}\n${set("a", ',"ifVersion":0')}`)
      const refused = yield* call(["batch", file])
      assert.strictEqual(refused.code, 4)
      assert.include(refused.stderr, "operations[1]")
      assert.strictEqual((yield* call(["kv", "get", "cli/batch", "c"])).code, 3)
    })
  )

  it.effect("tells health and prints the documents", () =>
    Effect.gen(function* () {
      const health = yield* run(["health", "--strict"], { env: { CAUSEWAY_TOKEN: "" } })
      assert.include(health.stdout, '"ready":true')
      assert.strictEqual(health.code, JSON.parse(health.stdout).status === "ok" ? 0 : 1)
      const shown = yield* call(["health"], {}, true)
      assert.match(shown.stdout, /store +ready\n/)
      assert.strictEqual(shown.code, 0)
      const own = yield* run(["openapi"])
      const served = yield* call(["openapi", "--from-service"])
      assert.strictEqual(JSON.parse(own.stdout).openapi, "3.0.3")
      assert.deepStrictEqual(
        Object.keys(JSON.parse(served.stdout).paths).sort(),
        Object.keys(JSON.parse(own.stdout).paths).sort()
      )
      const protocol = yield* call(["openapi", "--asyncapi", "--from-service"])
      assert.match(JSON.parse(protocol.stdout).asyncapi, /^3\./)
    })
  )

  it.scoped("ends with a code and a sentence that tell what is wrong", () =>
    Effect.gen(function* () {
      const { url } = yield* Setting
      const silent = yield* proxy(url, () => "hang")
      const another = yield* proxy(url, () => "answer as another")
      const cases: ReadonlyArray<readonly [ReadonlyArray<string>, Record<string, string>, number, RegExp]> = [
        [["kv", "get", "n", "k"], { CAUSEWAY_TOKEN: "wrong" }, 5, /refuses the credential.*\n.*CAUSEWAY_TOKEN/],
        [
          ["kv", "set", "n", "k", "1"],
          { CAUSEWAY_TOKEN: "key-that-reads" },
          5,
          /\n.*a key that writes|\n.*CAUSEWAY_TOKEN/
        ],
        [["kv", "get", "n", "k"], { CAUSEWAY_URL: "http://127.0.0.1:9" }, 6, /cannot be reached.*\n.*causeway dev/],
        [
          ["kv", "get", "n", "k", "--timeout", "1"],
          { CAUSEWAY_URL: silent },
          6,
          /no answer within 1000 ms\n.*--timeout/
        ],
        [["kv", "get", "n", "k"], { CAUSEWAY_URL: "nowhere" }, 2, /CAUSEWAY_URL: "nowhere" is not an address/],
        [["kv", "get", "n"], {}, 2, /Missing argument <key>\ncauseway kv get --help/],
        [["kv", "list", "n", "--limit", "x"], {}, 2, /^--limit: 'x' is not a whole number\n/],
        [["import", "--existing", "keep"], {}, 2, /^--existing takes replace, skip\n/],
        [["kv", "get", "n", "k", "--url"], {}, 2, /^--url takes a value\n/],
        [["kv", "lst"], {}, 2, /^causeway kv does not take "lst"\nDid you mean causeway kv list\?/],
        [["kv", "get", "n", "k", "--jsn"], {}, 2, /Did you mean causeway kv get --json\?/],
        [["-v"], {}, 2, /Did you mean causeway --version\?/],
        [["--completions", "tcsh"], {}, 2, /^--completions takes bash, zsh, fish\n/],
        [["kv", "get", "n", "."], {}, 2, /^key must not be "\."/],
        [["kv", "get", "n", "k".repeat(2000)], {}, 2, /^key /],
        [["kv", "set", "n", "k", "1", "--actor", "a".repeat(2000)], {}, 2, /^actor /],
        [["openapi", "--from-service"], { CAUSEWAY_URL: another }, 1, /no OpenAPI document\nIs this the address/],
        [
          ["kv", "get", "n", "k"],
          { CAUSEWAY_URL: `${url}/elsewhere` },
          1,
          /\nIs this the address of a Causeway service/
        ]
      ]
      yield* Effect.forEach(
        cases,
        ([args, env, code, message]) =>
          Effect.map(call(args, env), ended => {
            assert.strictEqual(ended.code, code, JSON.stringify([args, ended]))
            assert.strictEqual(ended.stdout, "")
            assert.match(ended.stderr, message)
            assert.notMatch(ended.stderr, /^ +at /m)
          }),
        { concurrency: 2 }
      )
    })
  )

  it.effect("takes address and credential from a profile that nobody else can read", () =>
    Effect.gen(function* () {
      const { env, files, url } = yield* Setting
      const profiles = join(files, "profiles.json")
      writeFileSync(join(files, "key"), `${Service.key}\n`, { mode: 0o600 })
      writeFileSync(profiles, JSON.stringify({ prod: { url, tokenFile: "key" }, default: { url, token: "wrong" } }), {
        mode: 0o600
      })
      const mine = { CAUSEWAY_PROFILES: profiles, CAUSEWAY_SESSION_TOKEN: env.CAUSEWAY_SESSION_TOKEN ?? "" }
      const list = (args: ReadonlyArray<string>, more = {}) =>
        call(["kv", "list", "cli/profile", ...args], { CAUSEWAY_URL: "", CAUSEWAY_TOKEN: "", ...mine, ...more })
      assert.strictEqual((yield* list([])).code, 5)
      assert.strictEqual((yield* list(["--profile", "prod"], { CAUSEWAY_TOKEN: "wrong" })).code, 0)
      assert.strictEqual((yield* list([], { CAUSEWAY_TOKEN: Service.key })).code, 0)
      const unknown = yield* list(["--profile", "test"])
      assert.match(unknown.stderr, /no profile "test".*\nThere are prod, default\./)
      chmodSync(profiles, 0o644)
      const open = yield* list([])
      assert.strictEqual(open.code, 2)
      assert.match(open.stderr, /can be read by others\n.*chmod 600/)
      assert.notInclude(open.stderr, "wrong")
    })
  )

  it.effect("sends a credential that stands beside an address to that origin alone", () =>
    Effect.gen(function* () {
      const { files, url } = yield* Setting
      const profiles = join(files, "origins.json")
      writeFileSync(profiles, JSON.stringify({ default: { url, token: Service.key } }), { mode: 0o600 })
      const other = ["--url", url.replace("127.0.0.1", "localhost")]
      const list = (args: ReadonlyArray<string>, env: Readonly<Record<string, string>>) =>
        Effect.map(call(["kv", "list", "cli/origin", ...args], { ...env }), ({ code }) => code)
      const ofProfile = { CAUSEWAY_PROFILES: profiles, CAUSEWAY_URL: "", CAUSEWAY_TOKEN: "" }
      assert.strictEqual(yield* list([], ofProfile), 0)
      assert.strictEqual(yield* list(other, ofProfile), 5)
      const ofEnvironment = { CAUSEWAY_URL: url, CAUSEWAY_TOKEN: Service.key }
      assert.strictEqual(yield* list([], ofEnvironment), 0)
      assert.strictEqual(yield* list(other, ofEnvironment), 5)
      assert.strictEqual(yield* list(other, { CAUSEWAY_URL: "", CAUSEWAY_TOKEN: Service.key }), 0)
    })
  )

  it.effect("lists, shows and prints sessions", () =>
    Effect.gen(function* () {
      const held = yield* run(["chat"], { input: "hello there\n" })
      assert.strictEqual(held.code, 0, held.stderr)
      const id = /session (\S+);/.exec(held.stdout)?.[1] ?? ""
      const listed = yield* call(["sessions", "list"])
      assert.deepStrictEqual(
        linesOf(listed.stdout).map(session => session.id),
        [id]
      )
      const shown = yield* call(["sessions", "show", id], {}, true)
      assert.match(shown.stdout, /agent +assistant\n/)
      const events = linesOf((yield* call(["sessions", "tail", id, "--once"])).stdout)
      assert.strictEqual(events.at(-1)?.type, "synced")
      assert.isAbove(events.length, 5)
      const read = yield* run(["sessions", "tail", id, "--once"], { isTerminal: true })
      assert.include(read.stdout, "echo: hello there")
      const nobody = yield* call(["sessions", "show", "nobody"])
      assert.strictEqual(nobody.code, 3, nobody.stderr)
    })
  )

  it.effect("completes names in shells", () =>
    Effect.gen(function* () {
      for (const shell of ["bash", "zsh", "fish"]) {
        const { code, stdout } = yield* call(["--completions", shell])
        assert.strictEqual(code, 0)
        assert.include(stdout, "causeway")
        assert.include(stdout, "watch")
      }
    })
  )
})
