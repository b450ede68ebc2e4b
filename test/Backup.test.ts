/** `causeway backup` and `causeway restore`, and backups over HTTP, while a service runs. */
import { once } from "node:events"
import { existsSync, readdirSync } from "node:fs"
import * as Http from "node:http"
import type { AddressInfo } from "node:net"
import { join } from "node:path"
import { assert, layer } from "@effect/vitest"
import { ConfigProvider, Duration, Effect, Exit, Option, Redacted, Schedule, Scope } from "effect"
import { directoryOf } from "../src/CommandLine/Store/Backup.ts"
import { download } from "../src/CommandLine/Store/BackupDownload.ts"
import * as Restore from "../src/Storage/Backup/Restore.ts"
import * as InProcess from "./CommandLine/InProcess.ts"
import * as Disk from "./faults/Disk.ts"
import { onlyLong } from "./Scale.ts"
import { store } from "./Storage/Backup/Fixture.ts"
import { launch } from "./service/Command.ts"
import * as Environment from "./service/Environment.ts"
import { serve } from "./service/InProcess.ts"
import * as Service from "./service/Service.ts"
import { temporaryDirectory } from "./TemporaryDirectory.ts"

interface Change {
  readonly seq: number
  readonly op: "set" | "delete"
  readonly key: string
  readonly value: unknown
  readonly version: number
}

const headers = { authorization: `Bearer ${Service.key}`, "content-type": "application/json" }

const request = (url: string, path: string, init: RequestInit = {}) =>
  Effect.promise(signal => fetch(`${url}/api/v1${path}`, { ...init, signal, headers }))

const put = (url: string, key: string, value: unknown) =>
  Effect.flatMap(request(url, `/kv/n/${key}`, { method: "PUT", body: JSON.stringify({ value }) }), answer =>
    Effect.promise(async () => {
      await answer.text()
      return answer.status
    })
  )

/** The whole change log, and its epoch. */
const logOf = (url: string) =>
  Effect.gen(function* () {
    const changes: Array<Change> = []
    for (;;) {
      const answer = yield* request(url, `/changes?after=${changes.at(-1)?.seq ?? 0}&limit=1000`)
      const page = (yield* Effect.promise(() => answer.json())) as { readonly changes: ReadonlyArray<Change> }
      changes.push(...page.changes)
      // Under a load there is always more.
      if (page.changes.length < 1000) return { changes, epoch: answer.headers.get("kv-epoch") ?? "" }
    }
  })

/** What a log makes of the entries. */
const entriesOf = (changes: ReadonlyArray<Change>) => {
  const entries = new Map<string, Pick<Change, "value" | "version">>()
  for (const { key, op, value, version } of changes) {
    if (op === "set") entries.set(key, { value, version })
    else entries.delete(key)
  }
  return new Map([...entries].sort(([a], [b]) => (a < b ? -1 : 1)))
}

const json = (stdout: string): Record<string, unknown> => JSON.parse(stdout.trim().split("\n").at(-1) ?? "")

/** Runs a command that succeeds within this process, and returns the last line of what it prints. */
const succeed = (args: ReadonlyArray<string>, env: Readonly<Record<string, string>> = {}) =>
  Effect.map(InProcess.call(args, env), ({ code, stderr, stdout }) => {
    assert.strictEqual(code, 0, stderr)
    return json(stdout)
  })

const names = (directory: string) => readdirSync(directory).sort()

const copiesIn = (directory: string) => names(directory).filter(name => name.includes(".backup-"))

const until = (holds: Effect.Effect<boolean>) =>
  Effect.repeat(holds, { until: isSo => isSo, schedule: Schedule.spaced("20 millis") })

/** Asks for a backup again while it is another one's turn: that ends a moment after its copy was removed. */
const inTurn = <A>(ask: Effect.Effect<A>, statusOf: (answer: A) => number | undefined) =>
  Effect.repeat(Effect.delay(ask, "20 millis"), { until: answer => statusOf(answer) !== 503 })

/** Asks for a backup, and reads nothing of it. */
const hold = (url: string) =>
  Effect.acquireRelease(
    inTurn(
      Effect.promise(async () => {
        const asked = Http.get(`${url}/api/v1/backup`, { headers: { authorization: `Bearer ${Service.key}` } })
        const [response] = (await once(asked, "response")) as [Http.IncomingMessage]
        response.on("error", () => {})
        if (response.statusCode === 503) response.resume()
        return { asked, response }
      }),
      ({ response }) => response.statusCode
    ),
    ({ asked }) => Effect.sync(() => asked.destroy())
  )

layer(Environment.layer, { excludeTestServices: true })("a backup", it => {
  it.scoped("under a load of writes equals the log at its end; after a restore followers are notified", () =>
    Effect.gen(function* () {
      const [directory, place] = [yield* temporaryDirectory, yield* temporaryDirectory]
      const { end, url } = yield* Service.start({ directory })
      const load = yield* Scope.make()
      yield* Effect.forEach(
        [0, 1, 2, 3],
        client =>
          Effect.iterate(1, {
            while: () => true,
            body: n => Effect.delay(Effect.as(put(url, `k${client}-${n % 50}`, n), n + 1), "5 millis")
          }).pipe(Effect.forkIn(load)),
        { discard: true }
      )
      yield* until(Effect.map(logOf(url), ({ changes }) => changes.length > 100))
      const backedUp = yield* InProcess.call(["backup", join(place, "both")], {
        DATA_DIR: directory,
        CAUSEWAY_URL: url
      })
      assert.strictEqual(backedUp.code, 0, backedUp.stderr)
      assert.include(backedUp.stderr, `This backs up the data directory ${directory}. CAUSEWAY_URL does not select`)
      const made = json(backedUp.stdout)
      assert.strictEqual(made.source, directory)
      const sent = yield* succeed(["backup", join(place, "store.db"), "--url", url], { CAUSEWAY_TOKEN: Service.key })
      assert.strictEqual(sent.source, url)
      yield* until(Effect.map(logOf(url), ({ changes }) => changes.length > Number(sent.lastSeq)))
      yield* Scope.close(load, Exit.void)
      const before = yield* logOf(url)
      assert.isAbove(Number(sent.lastSeq), Number(made.lastSeq))
      assert.strictEqual(made.epoch, before.epoch)
      yield* end("SIGTERM")
      assert.deepStrictEqual(copiesIn(directory), [])

      const ofSent = yield* Restore.restore({
        backup: String(sent.backup),
        directory: join(place, "sent"),
        force: false
      })
      const upToSent = before.changes.slice(0, Number(sent.lastSeq))
      assert.deepInclude(ofSent, { lastSeq: upToSent.length, entries: entriesOf(upToSent).size })

      const { lastSeq } = made
      const target = join(place, "made")
      const restored = yield* succeed(["restore", String(made.backup), "--data-dir", target])
      assert.deepInclude(restored, { lastSeq, epochBefore: before.epoch, aside: null })
      const again = yield* serve({ DATA_DIR: target, KV_API_KEY: Service.key })
      const after = yield* logOf(again.url)
      assert.deepStrictEqual(after.changes, before.changes.slice(0, Number(lastSeq)))
      assert.strictEqual(after.epoch, restored.epoch)
      assert.notStrictEqual(after.epoch, before.epoch)
      const list = yield* request(again.url, "/kv/n")
      const { items } = (yield* Effect.promise(() => list.json())) as { readonly items: ReadonlyArray<Change> }
      const entries = entriesOf(after.changes)
      assert.deepStrictEqual(new Map(items.map(({ key, value, version }) => [key, { value, version }])), entries)
      assert.strictEqual(restored.entries, entries.size)
      const refused = yield* request(again.url, `/changes?after=${before.changes.length}&epoch=${before.epoch}`)
      assert.strictEqual(refused.status, 410)
    })
  )

  onlyLong(it.scoped.skipIf(!Disk.isPossible))(
    "that is killed is not there; one that is interrupted leaves nothing",
    () =>
      Effect.gen(function* () {
        const [directory, place] = [yield* store(1), yield* temporaryDirectory]
        const disk = yield* Disk.make(place)
        // The copy is written, and not flushed yet.
        yield* disk.set([{ call: "flush", outcome: "hang" }])
        const env = { DATA_DIR: directory, ...disk.env }
        const cases = [
          ["SIGKILL", 1],
          ["SIGINT", 0]
        ] as const
        for (const [signal, left] of cases) {
          yield* disk.set([{ call: "flush", outcome: "hang" }])
          const running = yield* launch(env, ["backup", join(place, signal)])
          yield* until(Effect.map(disk.injected, count => count > 0))
          assert.isFalse(existsSync(join(place, signal)))
          yield* running.kill(signal)
          assert.deepStrictEqual(yield* running.ended, { code: null, signal })
          assert.lengthOf(
            names(place).filter(name => name.startsWith(signal)),
            left
          )
          assert.isFalse(existsSync(join(place, signal)))
        }
        // A service that starts during the copy writes when the copy is complete.
        yield* disk.set([{ call: "flush", outcome: "hang" }])
        const running = yield* launch(env, ["backup", join(place, "SIGKILL")])
        yield* until(Effect.map(disk.injected, count => count > 0))
        const again = yield* Service.start({ directory })
        assert.strictEqual(yield* put(again.url, "k", 2), 503)
        yield* disk.heal
        assert.deepStrictEqual(yield* running.ended, { code: 0, signal: null })
        assert.deepInclude(json(running.output.stdout), { lastSeq: 1 })
        yield* until(Effect.map(put(again.url, "k", 3), status => status === 200))
      })
  )

  it.scoped("that does not arrive whole is none", () =>
    Effect.gen(function* () {
      const place = yield* temporaryDirectory
      const server = yield* Effect.acquireRelease(
        Effect.promise(async () => {
          const server = Http.createServer(({ url }, response) => {
            response.writeHead(200, {
              "content-length": url?.startsWith("/short") ? 4 : 3,
              "repr-digest": `sha-256=:${"A".repeat(43)}=:`,
              "kv-last-seq": 1,
              "kv-epoch": "e"
            })
            response.write("abc", () => (url?.startsWith("/short") ? response.destroy() : response.end()))
          }).listen(0, "127.0.0.1")
          await once(server, "listening")
          return server
        }),
        server => Effect.sync(() => server.close())
      )
      const { port } = server.address() as AddressInfo
      const cases = [
        ["short", /the backup did not arrive: The connection was lost/],
        ["other", /the backup did not arrive: its SHA-256 is not the one that the service sent/]
      ] as const
      for (const [path, message] of cases) {
        const url = `http://127.0.0.1:${port}/${path}`
        const connection = {
          url,
          kind: "store" as const,
          token: Redacted.make("key"),
          source: "",
          timeout: Duration.seconds(30)
        }
        const target = { target: join(place, "store.db"), force: false, report: () => {} }
        const failure = yield* Effect.flip(download(connection, target))
        assert.match(failure.message, message)
        assert.strictEqual(failure.exitCode, 6)
        assert.deepStrictEqual(names(place), [])
      }
    })
  )

  it.scoped.skipIf(!Disk.isPossible)(
    "over HTTP is one at a time, needs the key that writes, and leaves no copy on the disk",
    () =>
      Effect.gen(function* () {
        const [directory, place] = [yield* temporaryDirectory, yield* temporaryDirectory]
        const disk = yield* Disk.make(directory)
        const service = yield* Service.start({
          directory,
          env: { KV_AGENT_API_KEY: "key-that-reads", ...disk.env }
        })
        const { url } = service
        // More than the sockets hold.
        yield* Effect.forEach(
          Array.from({ length: 16 }, (_, n) => `k${n}`),
          key => put(url, key, "x".repeat(1_000_000)),
          { concurrency: 4 }
        )
        const backUp = ["backup", join(place, "store.db"), "--url", url]
        const reader = yield* InProcess.call(backUp, { CAUSEWAY_TOKEN: "key-that-reads" })
        assert.deepInclude(reader, { code: 5 }, reader.stderr)
        yield* Effect.scoped(
          Effect.gen(function* () {
            const { response } = yield* hold(url)
            assert.strictEqual(response.statusCode, 200)
            assert.lengthOf(copiesIn(directory), 1)
            const second = yield* request(url, "/backup")
            assert.deepStrictEqual([second.status, second.headers.get("retry-after")], [503, "10"])
            // Writers do not wait for it.
            yield* put(url, "during", 1)
          })
        )
        yield* until(Effect.sync(() => copiesIn(directory).length === 0))
        yield* disk.set([{ call: "write", outcome: "ENOSPC", file: "*.backup-*" }])
        const full = yield* inTurn(request(url, "/backup"), ({ status }) => status)
        assert.strictEqual(full.status, 507)
        assert.deepStrictEqual(yield* Effect.promise(() => full.json()), {
          error: "The disk became full while the copy was written"
        })
        assert.deepStrictEqual(copiesIn(directory), [])
        yield* disk.heal
        yield* hold(url)
        assert.lengthOf(copiesIn(directory), 1)
        yield* service.end("SIGKILL")
        assert.lengthOf(copiesIn(directory), 1)
        yield* serve({ DATA_DIR: directory, KV_API_KEY: Service.key })
        assert.deepStrictEqual(copiesIn(directory), [])
        assert.deepStrictEqual(names(place), [])
      })
  )

  it.effect("of a store in PostgreSQL is refused with what to use", () =>
    Effect.gen(function* () {
      const { exitCode, hint, message } = yield* Effect.flip(directoryOf(Option.none()))
      assert.deepInclude({ exitCode, message }, { exitCode: 1, message: "The store of STORE_URL is in PostgreSQL." })
      assert.match(String(hint), /^pg_basebackup and pg_dump back it up/)
      assert.notInclude(`${message}${hint}`, "secret")
      assert.strictEqual(yield* directoryOf(Option.some("here")), "here")
    }).pipe(Effect.withConfigProvider(ConfigProvider.fromMap(new Map([["STORE_URL", "postgres://user:secret@h/db"]]))))
  )
})
