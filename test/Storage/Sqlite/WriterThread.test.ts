import { readFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import { Worker } from "node:worker_threads"
import { describe, expect, it } from "@effect/vitest"
import { Effect, Exit, Logger, Schedule, Scope } from "effect"
import type { Write } from "../../../src/Kv/Write.ts"
import type { Request as AnyRequest, Reply } from "../../../src/Storage/Sqlite/Database/WriterPort.ts"
import * as WriterPort from "../../../src/Storage/Sqlite/Database/WriterPort.ts"
import type { Outcome } from "../../../src/Storage/Sqlite/Kv/Tables.ts"
import type { ThreadData } from "../../../src/Storage/Sqlite/WriterThread.ts"
import * as Sqlite from "../../../src/Storage/Sqlite.ts"
import { lastSeq, set } from "../../suites/Store/Fixture.ts"
import { temporaryDirectory } from "../../TemporaryDirectory.ts"
import { test } from "../../Tests.ts"

const startThread = (data: object) => WriterPort.startThread("WriterThread", "sqlite-writer", data)

type Request = AnyRequest<Write>
type Data = ThreadData & { readonly file: string }

const commit = (key: string): Request => ({
  kind: "commit",
  writes: [{ operations: [set("n", key, 1)], actor: "tester" }],
  now: 1000
})

/** A thread that hears everything and answers nothing. */
const silent = () => new Worker("require('node:worker_threads').parentPort.on('message', () => {})", { eval: true })

const send = <W, O>(port: WriterPort.WriterPort<W, O>, request: AnyRequest<W>) =>
  Effect.async<Reply<O>>(resume => port(request, reply => resume(Effect.succeed(reply))))

const setup = (start: (data: Data, attempt: number) => Worker) =>
  Effect.gen(function* () {
    const directory = yield* temporaryDirectory
    yield* Effect.provide(lastSeq, Sqlite.layer({ directory, writer: "inline" }))
    const workers: Array<Worker> = []
    const replies: Array<Reply<Outcome>> = []
    const port = yield* WriterPort.thread<Write, Outcome>(
      () => {
        const worker = start(
          { database: "kv", idempotencyBytes: 1_000_000, file: join(directory, "kv.db") },
          workers.length
        )
        workers.push(worker)
        return worker
      },
      reply => replies.push(reply)
    )
    return { directory, port, workers, replies }
  }).pipe(Effect.provide(Logger.remove(Logger.defaultLogger)))

/** Asks until the writer serves again. */
const eventually = (port: WriterPort.WriterPort<Write, Outcome>, request: Request) =>
  send(port, request).pipe(
    Effect.filterOrFail(reply => reply._tag === "Done"),
    Effect.retry(Schedule.spaced("20 millis"))
  )

/** The packages that a file loads, directly or by its imports. Imports of types load nothing. */
const loadedBy = (file: string, seen = new Set<string>()): ReadonlySet<string> => {
  if (seen.has(file)) return new Set()
  seen.add(file)
  const packages = new Set<string>()
  const statements = readFileSync(file, "utf8").matchAll(/^(?:import|export) (?!type )(?:([^"=;]*?) from )?"([^"]+)"/gm)
  for (const [, names = "", specifier = ""] of statements) {
    if (/^\{(\s*type \w+( as \w+)?,?)+\s*\}$/.test(names)) continue
    if (!specifier.startsWith(".")) packages.add(specifier)
    else for (const name of loadedBy(join(dirname(file), specifier), seen)) packages.add(name)
  }
  return packages
}

describe("the writing thread", () => {
  it("loads no schemas: they would take 40 MB and most of its start", () => {
    const entry = fileURLToPath(new URL("../../../src/Storage/Sqlite/WriterThread.ts", import.meta.url))
    const loaded = [...loadedBy(entry)].filter(name => !name.startsWith("node:")).sort()
    expect(loaded).toEqual(["better-sqlite3", "effect/Either"])
  })

  test.scopedLive("a thread that dies during commits leaves an intact log", function* () {
    const { port, workers } = yield* setup(startThread)
    let acknowledged = 0
    for (let round = 0; round < 3; round++) {
      for (let index = 0; index < 10; index++) {
        yield* eventually(port, commit(`r${round}-${index}`))
        acknowledged++
      }
      port(commit(`lost ${round}`), reply => {
        if (reply._tag === "Done") acknowledged++
      })
      yield* Effect.promise(() => workers[round]!.terminate())
    }
    const probe = yield* eventually(port, { kind: "probe" })
    expect(probe).toMatchObject({ _tag: "Done" })
    expect(probe._tag === "Done" && probe.lastSeq).toBeGreaterThanOrEqual(acknowledged)
  })

  test.scopedLive("a second request of a kind is refused, but probes share their answer", function* () {
    const { port, workers } = yield* setup((data, attempt) => (attempt === 0 ? silent() : startThread(data)))
    const replies: Array<string> = []
    const post = (name: string, request: Request) =>
      port(request, reply => replies.push(`${name}: ${reply._tag === "Unavailable" ? reply.reason : "done"}`))
    post("first", { kind: "expire", time: 1, limit: 1 })
    post("second", { kind: "expire", time: 2, limit: 1 })
    post("probe", { kind: "probe" })
    post("other probe", { kind: "probe" })
    expect(replies).toEqual(["second: the writer has not answered the last expire yet"])
    yield* Effect.promise(() => workers[0]!.terminate())
    expect(replies.slice(1)).toEqual(
      ["first", "probe", "other probe"].map(name => `${name}: the writing thread died: it ended`)
    )
  })

  const noThread = () => {
    throw new Error("no more threads")
  }

  test.scopedLive("a thread that cannot be started is retried, and requests in the meantime are refused", function* () {
    let attempts = 0
    const { port } = yield* setup(data => (attempts++ < 2 ? noThread() : startThread(data)))
    expect(yield* send(port, commit("a"))).toEqual({
      _tag: "Unavailable",
      cause: "Error",
      reason: "the writing thread cannot be started: Error: no more threads"
    })
    expect(yield* eventually(port, commit("b"))).toMatchObject({ lastSeq: 1 })
    expect(attempts).toBe(3)
  })

  test.live("the end of the scope is not followed by a wait for a thread", function* () {
    const scope = yield* Scope.make()
    yield* Scope.close(scope, Exit.void)
    const { port, workers } = yield* Scope.extend(setup(startThread), scope)
    expect(yield* send(port, commit("a"))).toMatchObject({ _tag: "Unavailable" })
    expect(workers).toEqual([])
  })

  test.scopedLive("a request that cannot be posted is a defect, and the next of its kind is served", function* () {
    const { port } = yield* setup(startThread)
    const odd: Write = Object.assign({ operations: [set("n", "odd", 1)], actor: "tester" }, { actor: () => {} })
    expect(yield* send(port, { kind: "commit", writes: [odd], now: 1 })).toMatchObject({
      _tag: "Unavailable",
      cause: "Defect",
      reason: expect.stringMatching(/could not be cloned[\s\S]*\n +at /)
    })
    expect(yield* send(port, commit("a"))).toMatchObject({ _tag: "Done" })
  })
})
