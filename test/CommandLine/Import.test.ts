/** `causeway import`, of files and from pipes. */
import { existsSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, layer } from "@effect/vitest"
import { Clock, Effect, Option, Stream } from "effect"
import { Changes } from "../../src/Simulator/Changes.ts"
import { testsOf } from "../Tests.ts"
import { proxy } from "./Proxy.ts"
import { call, jsonOf, run, Setting, layer as setting, start } from "./Setting.ts"

layer(setting, { excludeTestServices: true })("causeway import", it => {
  const test = testsOf(it)
  test.effect("imports the lines before a refused one, and continues once it is corrected", function* () {
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
    // Lines that the command refuses, and lines that the service refuses with 400 and 413.
    for (const [namespace, wrong, problem] of [
      ["cli/broken1", '{"key":', /^Line 4: it is not JSON/],
      ["cli/broken2", line(""), /^Line 4: key /],
      ["cli/broken3", latin1, /^Line 4: it is not UTF-8\n/],
      ["cli/broken6", `{"key":"c","value":"${"x".repeat(129 * 1024)}"}\n`, /^Line 4: value has 132098 bytes of JSON/]
    ] as const) {
      const start = `${line("a")}\n${line("b")}`
      writeFileSync(file, Buffer.concat([Buffer.from(start), Buffer.from(wrong)]))
      const refused = yield* importing(namespace)
      assert.strictEqual(refused.code, 1)
      assert.match(refused.stderr, problem)
      assert.match(refused.stderr, /\nCorrect it\. Lines 1 to 3 are imported; continue with --resume\.\n/)
      assert.deepStrictEqual(yield* keys(namespace), ["a 1", "b 1"])
      // A line before it has changed.
      writeFileSync(file, `${line("A")}\n${line("b")}${line("c")}`)
      const other = yield* importing(namespace, "--resume")
      assert.strictEqual(other.code, 2)
      assert.match(other.stderr, /the first 3 lines of the file differ\n.*--restart/)
      const elsewhere = yield* importing("cli/elsewhere", "--resume")
      assert.match(elsewhere.stderr, /the service or the options differ/)
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
    assert.match(piped.stderr, /^Line 2: .*\n.*Lines 1 to 1 are imported. Standard input cannot be resumed/)
    // A file that cannot be read is not a defect.
    const unreadable = yield* call(["import", "/proc/self/mem", "--namespace", "n"])
    assert.strictEqual(unreadable.code, 2)
    assert.match(unreadable.stderr, /^\/proc\/self\/mem cannot be read: \S+/)
  })

  test.scoped("continues an import that was killed, and repeats nothing that was recorded as done", function* () {
    const { client, files, url } = yield* Setting
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
    const between = yield* proxy(
      () => url,
      request => {
        if (!request.url?.endsWith("/batch")) return "pass"
        batches++
        changes.notify()
        return batches > 4 && isHanging ? "hang" : "pass"
      }
    )
    const mine = { CAUSEWAY_URL: between }
    const first = yield* start(["import", file, "--batch", "100"], { env: mine })
    // The fifth batch gets no answer.
    yield* Effect.raceFirst(
      changes.until(() => (batches >= 5 ? Option.some(undefined) : Option.none())),
      Effect.flatMap(first.ended, ended => Effect.dieMessage(`The import ended: ${JSON.stringify(ended)}`))
    )
    yield* first.signal("SIGKILL")
    yield* first.ended
    assert.strictEqual(JSON.parse(readFileSync(`${file}.import`, "utf8")).line, 400)
    // It hangs again at the same batch, and a signal ends it.
    const second = yield* start(["import", file, "--batch", "100", "--resume"], { env: mine })
    yield* changes.until(() => (batches >= 6 ? Option.some(undefined) : Option.none()))
    yield* second.signal("SIGINT")
    assert.deepStrictEqual(yield* second.ended, {
      code: 130,
      stdout: "",
      stderr: "Lines 1 to 400 are imported; continue with --resume.\n"
    })
    isHanging = false
    const refused = yield* call(["import", file], mine)
    assert.strictEqual(refused.code, 2)
    assert.match(refused.stderr, /line 400\n.*--resume.*--restart/)
    batches = 0
    const resumed = yield* call(["import", file, "--batch", "100", "--resume"], mine)
    assert.deepStrictEqual(jsonOf(resumed.stdout), { written: 600, skipped: 0, expired: 0, resumedAtLine: 400 })
    assert.strictEqual(batches, 6)
    assert.isFalse(existsSync(`${file}.import`))
    const page = Option.getOrThrow(yield* Stream.runHead(client.list("cli/many")))
    assert.deepStrictEqual(
      page.items.map(({ key, version }) => [key, version]),
      Array.from({ length: count }, (_, index) => [keyOf(index), 1])
    )
  })

  test.effect("skips expired entries by the clock of the service, whatever the clock of the user shows", function* () {
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
      // Errors name operations of the batch, and are reported with the lines of the file.
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

  test.effect("finds existing entries, however large they are", function* () {
    const { client, files } = yield* Setting
    const large = "x".repeat(100 * 1024)
    for (const key of ["a", "b", "d", "e"]) yield* client.set("cli/large", key, large)
    const file = join(files, "large.ndjson")
    const lines = ["a", "b", "c", "d", "e", "c"].map(key => `{"namespace":"cli/large","key":"${key}","value":1}\n`)
    writeFileSync(file, lines.join(""))
    const done = yield* call(["import", file, "--existing", "skip"])
    assert.deepStrictEqual(
      [done.stderr, jsonOf(done.stdout)],
      ["", { written: 1, skipped: 5, expired: 0, resumedAtLine: 0 }]
    )
  })

  test.scoped("retries while the service is unavailable, writes once, and reports it once", function* () {
    const { client, files, url } = yield* Setting
    const file = join(files, "away.ndjson")
    writeFileSync(file, '{"namespace":"cli/away","key":"k","value":1}\n')
    let lost = 0
    const losing = yield* proxy(
      () => url,
      request => (request.url?.endsWith("/batch") && --lost >= 0 ? "lose the answer" : "pass")
    )
    const importing = (...more: ReadonlyArray<string>) =>
      Effect.suspend(() => {
        lost = 2
        return call(["import", file, ...more], { CAUSEWAY_URL: losing })
      })
    const once = yield* importing("--retry-for", "0")
    assert.deepStrictEqual([once.code, once.stderr.includes("Trying again")], [6, false])
    const retried = yield* importing()
    assert.strictEqual(retried.code, 0)
    assert.strictEqual(retried.stderr.split("Trying again.").length, 2)
    const { items } = Option.getOrThrow(yield* Stream.runHead(client.listKeys("cli/away")))
    assert.strictEqual(items[0]?.version, 2)
  })
})
