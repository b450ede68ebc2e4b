/** `causeway kv watch`, in a pipe. */
import { assert, layer } from "@effect/vitest"
import { Duration } from "effect"
import { testsOf } from "../Tests.ts"
import { call, linesOf, Setting, serveWithLog, layer as setting, start } from "./Setting.ts"

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
