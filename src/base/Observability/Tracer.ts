/** Tracing by OpenTelemetry. It is off unless an endpoint is set and the optional packages are installed. */
import * as HttpMiddleware from "@effect/platform/HttpMiddleware"
import * as HttpTraceContext from "@effect/platform/HttpTraceContext"
import { Cause, Config, Context, Effect, Tracer as EffectTracer, Exit, Layer, Option } from "effect"
import { randomHex } from "../RandomHex.ts"
import * as Setting from "../Setting.ts"
import { version } from "../Version.ts"

/** The trace of the current fiber. */
export class Tracer extends Context.Tag("causeway/Tracer")<
  Tracer,
  {
    /** The trace id of the current span, or 32 random hexadecimal digits without one. */
    readonly currentTraceId: Effect.Effect<string>
  }
>() {}

/** The collector to which spans are exported, and their service name. */
export interface Collector {
  /** Base address of an OTLP collector over HTTP. */
  readonly endpoint: URL
  readonly serviceName: string
}

/** The collector as configuration variables; nothing if no endpoint is set. */
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

/** A valid trace id of W3C Trace Context. While tracing is off, spans have none. */
const traceIdPattern = /^(?!0{32})[0-9a-f]{32}$/

export const isTraced = ({ traceId }: EffectTracer.AnySpan): boolean => traceIdPattern.test(traceId)

/** The span of the fiber, or `undefined`; `Effect.currentSpan` would fail without one. */
const currentSpan = Effect.map(Effect.context<never>(), context => {
  const span = Context.getOption(context, EffectTracer.ParentSpan)
  return Option.isSome(span) && span.value._tag === "Span" ? span.value : undefined
})

/**
 * Headers with which another process continues the trace of the fiber (W3C Trace Context); none while tracing is off.
 */
export const currentTraceHeaders: Effect.Effect<Readonly<Record<string, string>>> = Effect.map(currentSpan, span => {
  if (span === undefined || !isTraced(span)) return {}
  const { traceparent = "" } = HttpTraceContext.toHeaders(span)
  return { traceparent }
})

/** Reads trace ids from the current span. */
export const layer: Layer.Layer<Tracer> = Layer.succeed(Tracer, {
  currentTraceId: Effect.flatMap(currentSpan, span =>
    // While tracing is off, spans have no valid trace id.
    span !== undefined && isTraced(span) ? Effect.succeed(span.traceId) : randomHex(4)
  )
})

/** Turns tracing off: no spans are created. */
export const layerOff: Layer.Layer<never> = Layer.merge(
  Layer.setTracerEnabled(false),
  // The platform's HTTP server would still compute the attributes of each request.
  Layer.scopedDiscard(Effect.locallyScoped(HttpMiddleware.currentTracerDisabledWhen, () => true))
)

/** The URL at which a collector receives spans, by the OTLP specification. */
export const tracesUrl = (endpoint: URL): string => {
  const url = new URL(endpoint)
  url.pathname = `${url.pathname.replace(/\/+$/, "")}/v1/traces`
  return url.toString()
}

/** Makes a span of another process with its trace flags. */
type MakeExternal = (span: {
  readonly traceId: string
  readonly spanId: string
  readonly traceFlags: number
}) => EffectTracer.ExternalSpan

/** The exit of interrupted work as a failure, because @effect/opentelemetry would treat it as a success. */
const failedIfInterrupted = <A, E>(exit: Exit.Exit<A, E>): Exit.Exit<A, unknown> =>
  Exit.isFailure(exit) && Cause.isInterruptedOnly(exit.cause)
    ? Exit.fail("The work was interrupted before its end")
    : exit

/** A parent from another process with its sampling decision; without trace flags it would count as sampled. */
const flagged = (parent: Option.Option<EffectTracer.AnySpan>, external: MakeExternal) =>
  Option.map(parent, span => {
    const { sampled, spanId, traceId } = span
    return span._tag === "ExternalSpan" && !sampled ? external({ traceId, spanId, traceFlags: 0 }) : span
  })

/** Wraps a tracer: interrupted work ends its span with an error, and a parent that is not sampled is respected. */
const corrected = (tracer: EffectTracer.Tracer, external: MakeExternal): EffectTracer.Tracer =>
  EffectTracer.make({
    context: (execution, fiber) => tracer.context(execution, fiber),
    span: (name, parent, ...rest) => {
      const span = tracer.span(name, flagged(parent, external), ...rest)
      const end = span.end.bind(span)
      span.end = (endTime, exit) => {
        const shown = failedIfInterrupted(exit)
        if (shown !== exit) span.attribute("status.interrupted", true)
        end(endTime, shown)
      }
      return span
    }
  })

/** The tracers that already export spans. */
const exporting = new WeakSet<EffectTracer.Tracer>()

const setTracer = (external: MakeExternal) =>
  Effect.map(Effect.tracer, made => {
    const tracer = corrected(made, external)
    exporting.add(tracer)
    return Layer.setTracer(tracer)
  })

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
      // Limits the delay of shutdown by a collector that hangs.
      shutdownTimeout: "1500 millis"
    }))
  )
}

/**
 * Exports spans to a collector. Tracing is off if the packages cannot be loaded. Does nothing if spans are
 * already exported.
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

/** Exports spans to the collector, or turns tracing off without one. */
export const layerFor = (collector: Option.Option<Collector>): Layer.Layer<Tracer> =>
  Layer.merge(layer, Option.match(collector, { onNone: () => layerOff, onSome: collector => layerExport(collector) }))
