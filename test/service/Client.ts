/** A client of a running service; answers are decoded by the schemas of the contract. */
import * as HttpClient from "@effect/platform/HttpClient"
import type { HttpClientError } from "@effect/platform/HttpClientError"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import type * as HttpClientResponse from "@effect/platform/HttpClientResponse"
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { Effect, Layer, Schema, Stream } from "effect"
import { Change, Entry } from "../../src/Kv/Api.ts"
import { key } from "./Service.ts"

/** The service answered with an error. */
export class Unsuccessful extends Schema.TaggedError<Unsuccessful>()("Unsuccessful", {
  status: Schema.Int,
  body: Schema.String
}) {}

/** Tries again while the service answers 503, as it does after two seconds where the disk or the processor is too slow. */
export const persist = <A, E extends { readonly _tag: string }, R>(request: Effect.Effect<A, E, R>) =>
  Effect.retry(request, { while: error => error._tag === "Unsuccessful" && "status" in error && error.status === 503 })

/** An operation of a batch. */
export type Operation =
  | { readonly op: "set"; readonly namespace: string; readonly key: string; readonly value: unknown }
  | { readonly op: "delete"; readonly namespace: string; readonly key: string }

/** The result of an operation of a batch. */
export const Result = Schema.Union(Schema.Struct({ version: Schema.Int }), Schema.Struct({ deleted: Schema.Boolean }))

const BatchAnswer = Schema.parseJson(Schema.Struct({ ok: Schema.Literal(true), results: Schema.Array(Result) }))
const Items = Schema.parseJson(Schema.Struct({ items: Schema.Array(Entry) }))
const Changes = Schema.parseJson(Schema.Struct({ changes: Schema.Array(Change), lastSeq: Schema.Int }))
const Deleted = Schema.parseJson(Schema.Struct({ deleted: Schema.Boolean }))

/** One connection pool for each client, kept alive between requests as real clients do. */
export const layer: Layer.Layer<HttpClient.HttpClient> = NodeHttpClient.layerWithoutAgent.pipe(
  Layer.provide(NodeHttpClient.makeAgentLayer({ keepAlive: true, maxSockets: 32 }))
)

const path = (namespace: string, name?: string) =>
  `/api/v1/kv/${encodeURIComponent(namespace)}${name === undefined ? "" : `/${encodeURIComponent(name)}`}`

/** A client of the service at this base address. */
export const make = (url: string) =>
  Effect.map(HttpClient.HttpClient, http => {
    const execute = (request: HttpClientRequest.HttpClientRequest) =>
      http.execute(request.pipe(HttpClientRequest.prependUrl(url), HttpClientRequest.bearerToken(key)))

    const successful = (response: HttpClientResponse.HttpClientResponse) =>
      response.status === 200
        ? Effect.succeed(response)
        : Effect.flatMap(response.text, body => new Unsuccessful({ status: response.status, body }))

    const ask = <A, I>(schema: Schema.Schema<A, I>, request: HttpClientRequest.HttpClientRequest) =>
      execute(request).pipe(
        Effect.flatMap(successful),
        Effect.flatMap(response => response.text),
        Effect.flatMap(Schema.decodeUnknown(schema))
      )

    const post = (body: unknown) => HttpClientRequest.bodyText(JSON.stringify(body), "application/json")

    const put = (
      namespace: string,
      name: string,
      body: { readonly value: unknown; readonly actor?: string; readonly ttlMs?: number }
    ) => ask(Schema.parseJson(Entry), HttpClientRequest.put(path(namespace, name)).pipe(post(body)))

    const remove = (namespace: string, name: string, actor: string) =>
      ask(Deleted, HttpClientRequest.del(path(namespace, name)).pipe(HttpClientRequest.setUrlParam("actor", actor)))

    const get = (namespace: string, name: string) =>
      ask(Schema.parseJson(Entry), HttpClientRequest.get(path(namespace, name)))

    const list = (namespace: string) =>
      Effect.map(ask(Items, HttpClientRequest.get(path(namespace))), ({ items }) => items)

    const batch = (operations: ReadonlyArray<Operation>, actor: string) =>
      Effect.map(
        ask(BatchAnswer, HttpClientRequest.post("/api/v1/batch").pipe(post({ operations, actor }))),
        ({ results }) => results
      )

    const changes = (query: { readonly after: number; readonly limit?: number; readonly wait?: number }) =>
      ask(Changes, HttpClientRequest.get("/api/v1/changes").pipe(HttpClientRequest.setUrlParams(query)))

    /** All change records after `after`, page by page, as a polling client reads them. */
    const poll = (after: number) =>
      Effect.iterate(
        { all: [] as (typeof Change.Type)[], after, more: true },
        {
          while: ({ more }) => more,
          body: ({ all, after }) =>
            Effect.map(changes({ after, limit: 1000 }), page => {
              all.push(...page.changes)
              return { all, after: page.lastSeq, more: page.lastSeq > after }
            })
        }
      ).pipe(Effect.map(({ all }) => all))

    /** The change records after `after` as Server-Sent Events. */
    const follow = (after: number) =>
      Stream.unwrap(
        execute(
          HttpClientRequest.get("/api/v1/changes/stream").pipe(
            HttpClientRequest.setHeader("last-event-id", String(after))
          )
        ).pipe(
          Effect.flatMap(successful),
          Effect.map(response => changesOf(response.stream))
        )
      )

    return { put, remove, get, list, batch, changes, poll, follow }
  })

/** See {@link make}. */
export type Client = Effect.Effect.Success<ReturnType<typeof make>>

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
