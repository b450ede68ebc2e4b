/**
 * A tracer of @effect/opentelemetry made to do what is promised where its own manner differs: interrupted work ends
 * its span with an error, and a client's wish not to be sampled is heeded.
 */
import { Cause, Exit, Option, Tracer } from "effect"

/** Makes a span of another process's that carries its trace flags. */
export type MakeExternal = (span: {
  readonly traceId: string
  readonly spanId: string
  readonly traceFlags: number
}) => Tracer.ExternalSpan

/** The end of interrupted work as a failure that says so. */
const diagnosed = <A, E>(exit: Exit.Exit<A, E>): Exit.Exit<A, unknown> =>
  Exit.isFailure(exit) && Cause.isInterruptedOnly(exit.cause)
    ? Exit.fail("The work was interrupted before its end")
    : exit

/** Without flags of its own, a parent from elsewhere would count as sampled. */
const flagged = (parent: Option.Option<Tracer.AnySpan>, external: MakeExternal): Option.Option<Tracer.AnySpan> =>
  Option.map(parent, span => {
    const { sampled, spanId, traceId } = span
    return span._tag === "ExternalSpan" && !sampled ? external({ traceId, spanId, traceFlags: 0 }) : span
  })

/** Wraps a tracer. */
export const make = (tracer: Tracer.Tracer, external: MakeExternal): Tracer.Tracer =>
  Tracer.make({
    context: (execution, fiber) => tracer.context(execution, fiber),
    span: (name, parent, ...rest) => {
      const span = tracer.span(name, flagged(parent, external), ...rest)
      const end = span.end.bind(span)
      span.end = (endTime, exit) => {
        const shown = diagnosed(exit)
        if (shown !== exit) span.attribute("status.interrupted", true)
        end(endTime, shown)
      }
      return span
    }
  })
