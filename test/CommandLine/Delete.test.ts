/** `causeway kv delete --prefix`, in pipes and on pseudo-terminals. */
import { assert, layer } from "@effect/vitest"
import { Duration, Effect, Option, Redacted } from "effect"
import { deleteCounted } from "../../src/CommandLine/Entries/Delete.ts"
import { Changes } from "../../src/Simulator/Changes.ts"
import { keys } from "../Harness.ts"
import { onlyLong } from "../Scale.ts"
import { testsOf } from "../Tests.ts"
import { proxy } from "./Proxy.ts"
import { call, jsonOf, linesOf, Setting, layer as setting, start } from "./Setting.ts"

layer(setting, { excludeTestServices: true })("causeway kv delete --prefix", it => {
  const test = testsOf(it)
  test.scoped("deletes what starts with a prefix: after a question on a terminal, with --yes in a pipe", function* () {
    const { client } = yield* Setting
    const keys = Array.from({ length: 1001 }, (_, index) => `old-${index}`)
    const set = (key: string) => ({ op: "set", namespace: "cli/delete", key, value: 1 }) as const
    yield* client.batch(keys.slice(0, 1000).map(set))
    yield* client.batch([...keys.slice(1000), "new", "older"].map(set))
    const args = ["kv", "delete", "cli/delete", "--prefix", "old-"]
    const count = Effect.map(call(["kv", "list", "cli/delete", "--count"]), ({ stdout }) => jsonOf(stdout))
    const asked = yield* call(args)
    assert.strictEqual(asked.code, 2)
    assert.match(asked.stderr, /Nothing was deleted\n--yes deletes 1,001 entries of cli\/delete/)
    for (const [answer, code] of [
      ["n\n", 1],
      ["\u0003", 130]
    ] as const) {
      const declining = yield* start(args, { isTerminal: true })
      yield* declining.shows("[y/N] ")
      yield* declining.type(answer)
      assert.strictEqual((yield* declining.ended).code, code)
    }
    assert.deepStrictEqual(yield* count, { count: 1003 })
    const done = yield* call([...args, "--yes"])
    assert.deepStrictEqual(jsonOf(done.stdout), { deleted: true, count: 1001 })
    assert.deepStrictEqual(jsonOf((yield* call([...args, "--yes"])).stdout), { deleted: false, count: 0 })
    // The list of them has two pages.
    yield* client.batch(keys.slice(0, 1000).map(set))
    const agreeing = yield* start(["kv", "delete", "cli/delete", "--prefix", ""], { isTerminal: true })
    yield* agreeing.shows("Delete 1,002 entries of cli/delete, which is all of them? [y/N] ")
    yield* agreeing.type("y\n")
    const agreed = yield* agreeing.ended
    assert.strictEqual(agreed.code, 0)
    assert.include(agreed.stdout, "Deleted: 1,002 entries")
    assert.deepStrictEqual(yield* count, { count: 0 })
    for (const wrong of [[], ["k", "--prefix", "p"], ["--prefix", "p", "--if-version", "1"]]) {
      assert.strictEqual((yield* call(["kv", "delete", "cli/delete", ...wrong])).code, 2)
    }
  })

  test.scoped(
    "deletes what the user has agreed to, and nothing that was written while the question stood",
    function* () {
      const { client, url } = yield* Setting
      const set = (key: string) => client.set("cli/agreed", key, 1)
      for (const key of ["a1", "a2", "a3", "a4", "b"]) yield* set(key)
      let batches = 0
      const between = yield* proxy(
        () => url,
        async ({ url = "" }) => {
          // After the list that follows the answer.
          if (url.endsWith("/batch") && ++batches === 1) await Effect.runPromise(set("a3"))
          return "pass" as const
        }
      )
      const deleting = yield* start(["kv", "delete", "cli/agreed", "--prefix", "a"], {
        env: { CAUSEWAY_URL: between },
        isTerminal: true
      })
      yield* deleting.shows("Delete 4 entries of cli/agreed with keys that start with a? [y/N] ")
      yield* set("a2")
      yield* set("a5")
      yield* deleting.type("y\n")
      const { code, stdout } = yield* deleting.ended
      assert.strictEqual(code, 0, stdout)
      assert.include(stdout, "Deleted: 2 entries; 3 entries stay: they were written in the meantime")
      const left = linesOf((yield* call(["kv", "list", "cli/agreed"])).stdout).map(({ key }) => key)
      assert.deepStrictEqual(left, ["a2", "a3", "a5", "b"])
    }
  )

  test.effect("deletes nothing of a store that has replaced the one in which entries were counted", function* () {
    const { client, url } = yield* Setting
    yield* client.set("cli/replaced", "k", 1)
    const token = Redacted.make(keys.write)
    const connection = { url, kind: "store", token, source: "", timeout: Duration.seconds(30) } as const
    const counted = { namespace: "cli/replaced", prefix: "", lastSeq: Number.MAX_SAFE_INTEGER, epoch: "another" }
    const { message } = yield* Effect.flip(deleteCounted({ client, connection }, counted, {}, () => {}))
    assert.match(message, /restored or replaced/)
    assert.isTrue(Option.isSome(yield* client.get("cli/replaced", "k")))
  })

  onlyLong(test.scoped)("reports how many entries were deleted before a failure", function* () {
    const { client, url } = yield* Setting
    const changes = new Changes()
    const set = (key: string) => ({ op: "set", namespace: "cli/half", key, value: 1 }) as const
    for (const half of ["a", "b"]) {
      yield* client.batch(Array.from({ length: 600 }, (_, index) => set(`${half}${index}`)))
    }
    let deletes = 0
    const losing = yield* proxy(
      () => url,
      ({ method }) => {
        if (method !== "DELETE") return "pass"
        deletes++
        changes.notify()
        return deletes === 2 ? "hang" : "pass"
      }
    )
    const args = ["kv", "delete", "cli/half", "--prefix", "", "--yes", "--timeout", "5"]
    const failed = yield* call(args, { CAUSEWAY_URL: losing })
    assert.strictEqual(failed.code, 6)
    assert.match(failed.stderr, /^1,000 entries were deleted before this:/)
    yield* client.batch(Array.from({ length: 1000 }, (_, index) => set(`c${index}`)))
    deletes = 0
    const stopped = yield* start(args.slice(0, -2), { env: { CAUSEWAY_URL: losing } })
    yield* changes.until(() => (deletes === 2 ? Option.some(undefined) : Option.none()))
    yield* stopped.signal("SIGINT")
    assert.deepStrictEqual(yield* stopped.ended, { code: 130, stdout: "", stderr: "1,000 entries were deleted.\n" })
  })
})
