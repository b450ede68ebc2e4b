/** Spans and log lines that a test looks at. */
import { Effect, Layer, Logger, type LogLevel, Tracer } from "effect"
import * as Logging from "../../../src/base/Observability/Logging.ts"

/** A tracer that keeps the spans that it makes. */
export const recording = Effect.map(Effect.tracer, tracer => {
  const spans: Array<Tracer.Span> = []
  return {
    spans,
    named: (name: string) => spans.filter(span => span.name === name),
    tracer: Tracer.make({
      context: (f, fiber) => tracer.context(f, fiber),
      span: (...args) => {
        const span = tracer.span(...args)
        spans.push(span)
        return span
      }
    })
  }
})

/** A line of the log. */
interface Line {
  readonly level: string
  readonly message: string
  readonly annotations: Readonly<Record<string, unknown>>
}

/** What is logged from a level on, as the service would write it. */
export const logged = (level: LogLevel.LogLevel) => {
  const texts: Array<string> = []
  const logger = Logger.make(options => {
    texts.push(Logging.toLine(options))
  })
  return {
    texts,
    lines: (): ReadonlyArray<Line> => texts.map(text => ({ annotations: {}, ...JSON.parse(text) })),
    layer: Layer.merge(Layer.fresh(Logger.replace(Logger.defaultLogger, logger)), Logger.minimumLogLevel(level))
  }
}
