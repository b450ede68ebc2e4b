import { Context, FiberRef, FiberRefs, Option, Tracer } from "effect"

/** A valid trace id of W3C Trace Context. While tracing is off, spans have none. */
const traceIdPattern = /^(?!0{32})[0-9a-f]{32}$/

/** Whether a span belongs to a trace. */
export const isTraced = ({ traceId }: Tracer.AnySpan): boolean => traceIdPattern.test(traceId)

/** The annotations of log lines within a span; none outside of a span and while tracing is off. */
export const annotationsOf = (refs: FiberRefs.FiberRefs): Readonly<Record<string, string>> => {
  const context = FiberRefs.getOrDefault(refs, FiberRef.currentContext)
  const span = Option.getOrUndefined(Context.getOption(context, Tracer.ParentSpan))
  if (span === undefined || !isTraced(span)) return {}
  const { traceId, spanId } = span
  return span._tag === "Span" ? { traceId, spanId, span: span.name } : { traceId, spanId }
}
