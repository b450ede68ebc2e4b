import { Context, FiberRef, FiberRefs, Option, Tracer } from "effect"

/** Trace ids as W3C Trace Context has them; a span has none while tracing is off. */
const traceIdPattern = /^(?!0{32})[0-9a-f]{32}$/

/** Whether a span belongs to a trace that somebody may look up. */
export const isTraced = ({ traceId }: Tracer.AnySpan): boolean => traceIdPattern.test(traceId)

/** What log lines say of the span that their fiber works in; nothing outside of one and while tracing is off. */
export const annotationsOf = (refs: FiberRefs.FiberRefs): Readonly<Record<string, string>> => {
  const context = FiberRefs.getOrDefault(refs, FiberRef.currentContext)
  const span = Option.getOrUndefined(Context.getOption(context, Tracer.ParentSpan))
  if (span === undefined || !isTraced(span)) return {}
  const { traceId, spanId } = span
  return span._tag === "Span" ? { traceId, spanId, span: span.name } : { traceId, spanId }
}
