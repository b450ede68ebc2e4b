/** Writes with idempotency keys, repeated by a client whose service is killed. */
import { assert, layer } from "@effect/vitest"
import { Deferred, Effect, Either } from "effect"
import { makeKeyValueClient } from "../src/Client/Client.ts"
import { times } from "./Scale.ts"
import * as Environment from "./service/Environment.ts"
import { serve } from "./service/InProcess.ts"
import * as Service from "./service/Service.ts"
import { temporaryDirectory } from "./TemporaryDirectory.ts"

const namespace = "tenant:t/counters"

/** Numbers of the writes. Each has its own actor, which identifies it in the log, and several share a key. */
const numbers = Array.from({ length: 120 }, (_, number) => number)

layer(Environment.layer, { excludeTestServices: true })("a write with an idempotency key", it => {
  it.scoped(
    "is applied once and answered the same, however often the service is killed and the client repeats it",
    () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        const answers = new Map<number, unknown>()
        /** Sends all writes at once. `onAnswer` is called with each answer. */
        const sendAll = (url: string, onAnswer: () => void) => {
          const client = makeKeyValueClient({ baseUrl: url, token: Service.key })
          const send = (number: number): Promise<unknown> => {
            const options = { actor: `w${number}`, idempotencyKey: `write ${number}` }
            const key = `k${number % 5}`
            if (number % 3 === 0) return client.batch([{ op: "set", namespace, key, value: number }], options)
            return number % 3 === 1
              ? client.set(namespace, key, number, { ...options, ttlMs: 3_600_000 })
              : client.set(namespace, key, "x".repeat(20_000), options)
          }
          return Effect.forEach(
            numbers,
            number =>
              Effect.map(Effect.either(Effect.tryPromise(() => send(number))), answer => {
                if (Either.isLeft(answer)) return false
                if (answers.has(number)) assert.deepStrictEqual(answer.right, answers.get(number))
                answers.set(number, answer.right)
                onAnswer()
                return true
              }),
            { concurrency: "unbounded" }
          )
        }
        for (let round = 0; round < times(3); round++) {
          yield* Effect.scoped(
            Effect.gen(function* () {
              const service = yield* Service.start({ directory })
              const moment = yield* Deferred.make<void>()
              let left = 1 + ((17 * round) % 90)
              yield* Effect.all(
                [
                  // Where the disk is too slow, fewer are answered.
                  Effect.zipLeft(
                    sendAll(service.url, () => --left === 0 && Deferred.unsafeDone(moment, Effect.void)),
                    Deferred.succeed(moment, undefined)
                  ),
                  Effect.zipRight(Deferred.await(moment), service.end("SIGKILL"))
                ],
                { concurrency: "unbounded" }
              )
            })
          )
        }
        const service = yield* serve({ DATA_DIR: directory, KV_API_KEY: Service.key })
        // Again while the disk is too slow for some of them.
        yield* Effect.repeat(
          sendAll(service.url, () => undefined),
          { until: done => done.every(isDone => isDone) }
        )
        const { changes } = yield* Effect.promise(async () => {
          const headers = { authorization: `Bearer ${Service.key}` }
          const response = await fetch(`${service.url}/api/v1/changes?limit=1000`, { headers })
          return (await response.json()) as { readonly changes: ReadonlyArray<{ readonly actor: string }> }
        })
        assert.deepStrictEqual(changes.map(({ actor }) => actor).sort(), numbers.map(number => `w${number}`).sort())
      }),
    { timeout: 600_000 }
  )
})
