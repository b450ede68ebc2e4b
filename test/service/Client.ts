/**
 * A client of a running service: the product's own, and the log as it travels, decoded by the schemas of the contract.
 */
import { randomUUID } from "node:crypto"
import * as HttpClient from "@effect/platform/HttpClient"
import type { HttpClientError } from "@effect/platform/HttpClientError"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { Effect, Layer, Schema, Stream } from "effect"
import * as Client from "../../src/exports/clientEffect.ts"
import { Change } from "../../src/Kv/Api.ts"
import { key } from "./Service.ts"

/** The service answered a request for the log with an error. */
export class Unsuccessful extends Schema.TaggedError<Unsuccessful>()("Unsuccessful", {
  status: Schema.Int,
  body: Schema.String
}) {}

/** The status that a request was answered with, if there was an answer. */
export const statusOf = (error: object): number | undefined =>
  "status" in error && typeof error.status === "number" ? error.status : undefined

/** Whether there was no answer, as where the service is gone. */
export const isUnanswered = ({ _tag }: { readonly _tag: string }): boolean =>
  ["ConnectionFailed", "RequestError", "ResponseError"].includes(_tag)

/**
 * Tries again while the service answers 503, as it does after two seconds where the disk or the processor is too slow.
 */
export const persist = <A, E extends object, R>(request: Effect.Effect<A, E, R>) =>
  Effect.retry(request, { while: error => statusOf(error) === 503 })

/** The same for a write. An answer of 503 does not say whether it was made. Its idempotency key has it made once. */
export const once = <A, E extends object, R>(
  write: (options: { readonly idempotencyKey: string }) => Effect.Effect<A, E, R>
): Effect.Effect<A, E, R> => Effect.suspend(() => persist(write({ idempotencyKey: randomUUID() })))

const Changes = Schema.parseJson(Schema.Struct({ changes: Schema.Array(Change), lastSeq: Schema.Int }))

/** One connection pool for each client, kept alive between requests as real clients do. */
export const layer: Layer.Layer<HttpClient.HttpClient> = NodeHttpClient.layerWithoutAgent.pipe(
  Layer.provide(NodeHttpClient.makeAgentLayer({ keepAlive: true, maxSockets: 32 }))
)

/**
 * The product's client of the service at this base address. The log can also be read as it travels, without another try
 * where something fails: `poll` and `events`.
 */
export const make = (url: string) =>
  Effect.gen(function* () {
    const http = yield* HttpClient.HttpClient
    const client = yield* Client.make({ baseUrl: url, token: key, timeout: "10 minutes" })

    const execute = (request: HttpClientRequest.HttpClientRequest) =>
      Effect.flatMap(
        http.execute(request.pipe(HttpClientRequest.prependUrl(url), HttpClientRequest.bearerToken(key))),
        response =>
          response.status === 200
            ? Effect.succeed(response)
            : Effect.flatMap(response.text, body => new Unsuccessful({ status: response.status, body }))
      )

    const page = (after: number) =>
      execute(
        HttpClientRequest.get("/api/v1/changes").pipe(HttpClientRequest.setUrlParams({ after, limit: 1000 }))
      ).pipe(
        Effect.flatMap(response => response.text),
        Effect.flatMap(Schema.decodeUnknown(Changes))
      )

    return {
      ...client,

      /** An entry that must be there. */
      existing: (namespace: string, name: string) => Effect.flatten(client.get(namespace, name)),

      /** All entries of a namespace. */
      entries: (namespace: string) =>
        Effect.map(Stream.runCollect(client.list(namespace)), pages => [...pages].flatMap(({ items }) => items)),

      /** All change records after `after`, page by page. */
      poll: (after: number) =>
        Effect.iterate(
          { all: [] as (typeof Change.Type)[], after, more: true },
          {
            while: ({ more }) => more,
            body: ({ all, after }) =>
              Effect.map(page(after), page => {
                all.push(...page.changes)
                return { all, after: page.lastSeq, more: page.lastSeq > after }
              })
          }
        ).pipe(Effect.map(({ all }) => all)),

      /** The change records after `after` as Server-Sent Events. */
      events: (after: number) =>
        Stream.unwrap(
          execute(
            HttpClientRequest.get("/api/v1/changes/stream").pipe(
              HttpClientRequest.setHeader("last-event-id", String(after))
            )
          ).pipe(Effect.map(response => changesOf(response.stream)))
        )
    }
  })

/** See {@link make}. */
export type RunningClient = Effect.Effect.Success<ReturnType<typeof make>>

/** The change records of an event stream; the id of each event must begin with its `seq`. */
const changesOf = (bytes: Stream.Stream<Uint8Array, HttpClientError>) =>
  bytes.pipe(
    Stream.decodeText(),
    Stream.splitLines,
    Stream.mapAccum("", (id, line): readonly [string, ReadonlyArray<string>] => {
      if (line.startsWith("id: ")) return [line.slice(4, line.indexOf("@")), []]
      return [id, line.startsWith("data: ") ? [`{"id":${id},"change":${line.slice(6)}}`] : []]
    }),
    Stream.mapConcat(events => events),
    Stream.mapEffect(event => Effect.map(Schema.decodeUnknown(Event)(event), ({ change }) => change))
  )

const Event = Schema.parseJson(
  Schema.Struct({ id: Schema.Int, change: Change }).pipe(
    Schema.filter(({ id, change }) => id === change.seq || `the event ${id} has the change ${change.seq}`)
  )
)
