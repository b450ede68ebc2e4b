/** A collector of traces: a real HTTP server that keeps the spans it receives (OTLP in JSON), or never answers. */
import { Effect, Schema } from "effect"
import { localServer } from "../../LocalServer.ts"

const Value = Schema.Struct({ key: Schema.String, value: Schema.Unknown })

const Span = Schema.Struct({
  traceId: Schema.String,
  spanId: Schema.String,
  parentSpanId: Schema.optional(Schema.String),
  name: Schema.String,
  kind: Schema.Int,
  attributes: Schema.Array(Value),
  endTimeUnixNano: Schema.Unknown,
  status: Schema.Struct({ code: Schema.Int, message: Schema.optional(Schema.String) })
})

/** A span as it is sent. */
export interface Span extends Schema.Schema.Type<typeof Span> {}

/** The codes of a span's status. */
export const code = { ok: 1, error: 2 } as const

/** The kinds of spans. */
export const kind = { internal: 1, server: 2, client: 3 } as const

const Export = Schema.parseJson(
  Schema.Struct({
    resourceSpans: Schema.Array(
      Schema.Struct({
        resource: Schema.Struct({ attributes: Schema.Array(Value) }),
        scopeSpans: Schema.Array(Schema.Struct({ spans: Schema.Array(Span) }))
      })
    )
  })
)

/** Starts a collector until the scope closes; it can be made to hang. */
export const collector = (options: { readonly hangs?: boolean } = {}) =>
  Effect.gen(function* () {
    const requests: Array<{ readonly path: string; readonly type: string | undefined; readonly body: string }> = []
    const { url } = yield* localServer((request, response) => {
      const chunks: Array<Buffer> = []
      request.on("data", chunk => chunks.push(chunk))
      request.on("end", () => {
        const body = Buffer.concat(chunks).toString()
        requests.push({ path: request.url ?? "", type: request.headers["content-type"], body })
        if (options.hangs !== true) response.end("{}")
      })
    })
    const exports = Effect.suspend(() =>
      Effect.forEach(requests, ({ body }) => Schema.decodeUnknown(Export)(body)).pipe(
        Effect.map(all => all.flatMap(({ resourceSpans }) => resourceSpans)),
        Effect.orDie
      )
    )
    return {
      requests,
      target: { endpoint: new URL(`${url}/base/`), serviceName: "tested" },
      /** Attributes of the process that sent spans. */
      resources: Effect.map(exports, all => all.map(({ resource }) => resource.attributes)),
      spans: Effect.map(
        exports,
        (all): ReadonlyArray<Span> => all.flatMap(({ scopeSpans }) => scopeSpans.flatMap(({ spans }) => spans))
      )
    }
  })
