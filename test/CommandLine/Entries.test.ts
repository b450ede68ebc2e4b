/** Commands of single entries, in pipes and on pseudo-terminals. */
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, layer } from "@effect/vitest"
import { Duration, Effect, Option } from "effect"
import { testsOf } from "../Tests.ts"
import { proxy } from "./Proxy.ts"
import { call, jsonOf, linesOf, run, Setting, serveWithLog, layer as setting, start } from "./Setting.ts"

layer(setting, { excludeTestServices: true })("commands of entries", it => {
  const test = testsOf(it)
  test.effect("sets, gets and deletes entries, and keeps the text of values", function* () {
    const value = '{"b":12345678901234567890,"1":2.0}'
    const set = yield* call(["kv", "set", "cli/kv", "k", "--actor", "anna", "--if-version", "0", value])
    assert.strictEqual(set.stderr, "")
    assert.include(set.stdout, `"value":${value},"version":1,"updatedBy":"anna"`)
    const got = yield* call(["kv", "get", "cli/kv", "k", "--value-only"])
    assert.strictEqual(got.stdout, `${value}\n`)
    const piped = yield* run(["kv", "set", "cli/kv", "text", "--string"], { input: "two\nlines\n" })
    assert.include(piped.stdout, '"value":"two\\nlines"')
    const conflict = yield* call(["kv", "set", "cli/kv", "k", "--if-version=7", "-5"])
    assert.strictEqual(conflict.code, 4)
    assert.match(conflict.stderr, /is at version 1\n.*--if-version/)
    assert.deepStrictEqual(jsonOf((yield* call(["kv", "delete", "cli/kv", "k", "--if-version", "1"])).stdout), {
      deleted: true
    })
    const absent = yield* call(["kv", "get", "cli/kv", "k"])
    assert.deepStrictEqual([absent.code, absent.stdout], [3, ""])
    assert.match(absent.stderr, /There is no entry k in cli\/kv\n.*kv list/)
    const bad = yield* call(["kv", "set", "cli/kv", "k", "hello"])
    assert.strictEqual(bad.code, 2)
    assert.match(bad.stderr, /not JSON.*\n.*--string/)
  })

  test.scoped("says on a terminal that it waits for a value, and takes it", function* () {
    const { client } = yield* Setting
    const typing = yield* start(["kv", "set", "cli/typed", "k"], { isTerminal: true })
    yield* typing.shows("Reading standard input; Ctrl-D ends it.")
    yield* typing.type('"typed"\n\u0004')
    assert.strictEqual((yield* typing.ended).code, 0)
    assert.strictEqual(Option.getOrThrow(yield* client.get("cli/typed", "k")).value, "typed")
  })

  test.effect("shows a table on a terminal, in which no control character of a name or a value is raw", function* () {
    const { client } = yield* Setting
    yield* client.set("cli/table", "\u001b[2J\u0007", "\u009b31m \u202e\u200f\u061c")
    yield* client.set("cli/table", "plain", { a: 1 })
    const table = yield* call(["kv", "list", "cli/table"], {}, true)
    assert.strictEqual(table.code, 0)
    assert.match(table.stdout, /^KEY +VERSION +UPDATED +BY +EXPIRES +VALUE\n/)
    assert.match(table.stdout, /\nplain +1 +\d{4}-.* api +never +\{"a":1\}\n/)
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

  test.effect(
    "lists a part of a namespace, backwards, without values, or only its number, and the namespaces",
    function* () {
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
    }
  )

  test.effect("takes no text that is not UTF-8", function* () {
    const { files } = yield* Setting
    const file = join(files, "text")
    const set = (bytes: Buffer) => {
      writeFileSync(file, bytes)
      return call(["kv", "set", "cli/text", "k", "--string", "--file", file])
    }
    const refused = yield* set(Buffer.from("caf\xe9", "latin1"))
    assert.deepStrictEqual([refused.code, refused.stderr], [2, `${file}: it is not UTF-8\n`])
    // The byte order mark of an editor is not part of the text.
    assert.include((yield* set(Buffer.from("\ufeffcafé"))).stdout, '"value":"café"')
  })

  test.scoped("explains how to repeat a write whose answer was lost, and applies it once", function* () {
    const { files, url } = yield* Setting
    const keys: Array<string> = []
    let lost = 1
    const losing = yield* proxy(
      () => url,
      ({ headers }) => {
        keys.push(String(headers["idempotency-key"]))
        return --lost >= 0 ? "lose the answer" : "pass"
      }
    )
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
      // The next write is another one, and is retried.
      lost = 1
      const patient = yield* call([...args, "--retry-for", "30"], { CAUSEWAY_URL: losing })
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
      ["--retry-for", "1"]
    ]) {
      assert.strictEqual((yield* call(["kv", "delete", "cli/once", "--prefix", "", ...more])).code, 2)
    }
  })

  test.effect("applies a batch, or nothing of it", function* () {
    const set = (key: string, more = "") => `{"op":"set","namespace":"cli/batch","key":"${key}","value":1.0${more}}`
    const { files } = yield* Setting
    const file = join(files, "batch.ndjson")
    writeFileSync(file, `[${set("a")},${set("b")}]`)
    const done = yield* call(["batch", file])
    assert.strictEqual(done.stdout, '{"ok":true,"results":[{"version":1},{"version":1}]}\n')
    writeFileSync(file, `${set("c")}\n${set("a", ',"ifVersion":0')}`)
    const refused = yield* call(["batch", file])
    assert.strictEqual(refused.code, 4)
    assert.include(refused.stderr, "operations[1]")
    assert.strictEqual((yield* call(["kv", "get", "cli/batch", "c"])).code, 3)
  })

  test.effect("advises if a value is too large, or a key was used for another write", function* () {
    const keyed = (value: string) => call(["kv", "set", "cli/keyed", "k", value, "--idempotency-key", "advised"])
    assert.strictEqual((yield* keyed("1")).code, 0)
    const other = yield* keyed("2")
    assert.strictEqual(other.code, 2)
    assert.match(other.stderr, /Idempotency-Key.*\n.*its own key/)
    const { files } = yield* Setting
    const file = join(files, "large.json")
    writeFileSync(file, JSON.stringify("x".repeat(1_200_000)))
    const large = yield* call(["kv", "set", "cli/keyed", "large", "--file", file])
    assert.strictEqual(large.code, 2)
    assert.match(large.stderr, /^The request body has \d+ bytes.*\n.*LIMIT_VALUE_BYTES/)
  })
})

layer(setting, { excludeTestServices: true })("causeway kv watch", it => {
  const test = testsOf(it)
  test.scoped("watches: entries, then changes, each as it happens, until a signal or a closed pipe", function* () {
    const { client } = yield* Setting
    yield* client.set("cli/watch", "a1", 1)
    yield* client.set("cli/watch", "b1", 1)
    const watching = yield* start(["kv", "watch", "cli/watch", "--prefix", "a"])
    const updates = yield* start(["kv", "watch", "cli/watch", "--updates-only"])
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

  test.effect("ends a follower of a position after the store was replaced", function* () {
    const ended = yield* call(["kv", "watch", "--from", "0", "--epoch", "another"])
    assert.strictEqual(ended.code, 1)
    assert.strictEqual(linesOf(ended.stdout)[0]?.type, "reset")
    assert.match(ended.stderr, /The store was restored or replaced.*\n.*--from \d+ --epoch/)
  })

  test.scoped("prints from position 0 what is kept of a log, and ends at one that is not", function* () {
    const { log, url } = yield* serveWithLog
    const env = { CAUSEWAY_URL: url }
    for (const value of [1, 2, 3]) yield* call(["kv", "set", "n", "k", String(value)], env)
    while ((yield* log.trim(Duration.zero)) > 0);
    const watching = yield* start(["kv", "watch", "--from", "0"], { env })
    yield* watching.shows('"change"')
    yield* watching.signal("SIGINT")
    const lines = linesOf((yield* watching.ended).stdout)
    assert.deepStrictEqual(
      lines.filter(({ type }) => type === "change").map(({ change }) => (change as { readonly seq: number }).seq),
      [3]
    )
    assert.notInclude(
      lines.map(({ type }) => type),
      "trimmed"
    )
    const late = yield* call(["kv", "watch", "--from", "1"], env)
    assert.strictEqual(late.code, 1)
    assert.match(late.stderr, /Changes after 1 are no longer kept/)
  })
})
