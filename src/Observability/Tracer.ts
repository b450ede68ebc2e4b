/**
 * Traces by OpenTelemetry: off unless an endpoint is set and the optional packages are installed.
 */
import * as HttpMiddleware from "@effect/platform/HttpMiddleware"
import { Cause, Config, Context, Effect, Tracer as EffectTracer, Layer, Option, Random } from "effect"
import * as Setting from "../Setting.ts"
import { version } from "../Version.ts"
import * as CurrentSpan from "./CurrentSpan.ts"
import * as FaithfulTracer from "./FaithfulTracer.ts"

/** The trace that the current fiber works for. */
export class Tracer extends Context.Tag("causeway/Tracer")<
  Tracer,
  {
    /** The active span's trace id, or 32 random hexadecimal digits where there is none. */
    readonly currentTraceId: Effect.Effect<string>
  }
>() {}

/** Where spans go, and under which name. */
export interface Collector {
  /** Base address of an OTLP collector over HTTP. */
  readonly endpoint: URL
  readonly serviceName: string
}

/** The collector, where one is set. */
export const config: Config.Config<Option.Option<Collector>> = Config.all({
  endpoint: Setting.declare(
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    {
      description: "Base address of an OpenTelemetry collector over HTTP; traces are sent when it is set",
      allowed: "an http or https URL",
      default: Option.none<URL>(),
      shown: "none"
    },
    text => (URL.canParse(text) && /^https?:/i.test(text) ? Option.some(Option.some(new URL(text))) : Option.none())
  ),
  serviceName: Setting.string("OTEL_SERVICE_NAME", { description: "Service name in traces", default: "causeway" })
}).pipe(Config.map(({ endpoint, serviceName }) => Option.map(endpoint, endpoint => ({ endpoint, serviceName }))))

const randomWord = Effect.map(Random.nextIntBetween(0, 2 ** 32), word => word.toString(16).padStart(8, "0"))
const randomHalf = Effect.flatMap(randomWord, left => Effect.map(randomWord, right => left + right))
const randomTraceId = Effect.flatMap(randomHalf, left => Effect.map(randomHalf, right => left + right))

/** The span that the fiber is in; `Effect.currentSpan` would make an error of it where there is none. */
const currentSpan = Effect.map(Effect.context<never>(), context => {
  const span = Context.getOption(context, EffectTracer.ParentSpan)
  return Option.isSome(span) && span.value._tag === "Span" ? span.value : undefined
})

/** Tells trace ids. */
export const layer: Layer.Layer<Tracer> = Layer.succeed(Tracer, {
  currentTraceId: Effect.flatMap(currentSpan, span =>
    // While tracing is off, spans are stand-ins whose trace id is none.
    span !== undefined && CurrentSpan.isTraced(span) ? Effect.succeed(span.traceId) : randomTraceId
  )
})

/** No spans at all: what would be wrapped in one runs as it is. */
export const layerOff: Layer.Layer<never> = Layer.merge(
  Layer.setTracerEnabled(false),
  // The HTTP server would describe each request, though nobody takes the description.
  Layer.scopedDiscard(Effect.locallyScoped(HttpMiddleware.currentTracerDisabledWhen, () => true))
)

/** The address that a collector takes spans at, by the OTLP specification. */
export const tracesUrl = (endpoint: URL): string => {
  const url = new URL(endpoint)
  url.pathname = `${url.pathname.replace(/\/+$/, "")}/v1/traces`
  return url.toString()
}

/** The tracers set up here, to tell them from others. */
const exporting = new WeakSet<EffectTracer.Tracer>()

const setTracer = (external: FaithfulTracer.MakeExternal) =>
  Effect.map(Effect.tracer, made => {
    const tracer = FaithfulTracer.make(made, external)
    exporting.add(tracer)
    return Layer.setTracer(tracer)
  })

/** Loads the optional packages and sets up the export, in batches. */
const load = async ({ endpoint, serviceName }: Collector): Promise<Layer.Layer<never>> => {
  const [NodeSdk, { makeExternalSpan }, { BatchSpanProcessor }, { OTLPTraceExporter }] = await Promise.all([
    import("@effect/opentelemetry/NodeSdk"),
    import("@effect/opentelemetry/Tracer"),
    import("@opentelemetry/sdk-trace-base"),
    import("@opentelemetry/exporter-trace-otlp-http")
  ])
  return Layer.provide(
    Layer.unwrapEffect(setTracer(makeExternalSpan)),
    NodeSdk.layer(() => ({
      resource: { serviceName, serviceVersion: version },
      spanProcessor: new BatchSpanProcessor(new OTLPTraceExporter({ url: tracesUrl(endpoint), timeoutMillis: 2000 })),
      // A collector that hangs holds up the end of the process by no more than this.
      shutdownTimeout: "1500 millis"
    }))
  )
}

/**
 * Exports spans to a collector; does without where the packages cannot be loaded. Where spans are exported already
 * it does nothing.
 */
export const layerExport = (
  collector: Collector,
  loader: (collector: Collector) => Promise<Layer.Layer<never>> = load
): Layer.Layer<never> =>
  Layer.unwrapEffect(
    Effect.flatMap(Effect.tracer, current =>
      exporting.has(current)
        ? Effect.succeed(Layer.empty)
        : Effect.catchAll(
            Effect.tryPromise(() => loader(collector)),
            error =>
              Effect.as(
                Effect.logDebug("Tracing is off: its optional packages cannot be loaded", Cause.fail(error.cause)),
                layerOff
              )
          )
    )
  )

/** Traces as the collector, or its absence, demands. */
export const layerFor = (collector: Option.Option<Collector>): Layer.Layer<Tracer> =>
  Layer.merge(layer, Option.match(collector, { onNone: () => layerOff, onSome: collector => layerExport(collector) }))
