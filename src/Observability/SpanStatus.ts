/**
 * The status of spans where @effect/opentelemetry's own differs from what is promised: a span whose work was
 * interrupted ends with an error.
 */
import { Cause, Exit, Tracer } from "effect"

/** The end of interrupted work as a failure that says so. */
const diagnosed = <A, E>(exit: Exit.Exit<A, E>): Exit.Exit<A, unknown> =>
  Exit.isFailure(exit) && Cause.isInterruptedOnly(exit.cause)
    ? Exit.fail("The work was interrupted before its end")
    : exit

/** A tracer whose spans end with status ERROR and a message where their work was interrupted. */
export const withInterruptions = (tracer: Tracer.Tracer): Tracer.Tracer =>
  Tracer.make({
    context: (execution, fiber) => tracer.context(execution, fiber),
    span: (...options) => {
      const span = tracer.span(...options)
      const end = span.end.bind(span)
      span.end = (endTime, exit) => {
        const shown = diagnosed(exit)
        if (shown !== exit) span.attribute("status.interrupted", true)
        end(endTime, shown)
      }
      return span
    }
  })
