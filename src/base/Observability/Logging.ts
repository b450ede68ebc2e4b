/** Logging on standard output: JSON lines, or readable text in dev mode. */
import {
  Array as Arr,
  Cause,
  type Config,
  Context,
  FiberId,
  FiberRef,
  FiberRefs,
  HashMap,
  Inspectable,
  Layer,
  List,
  Logger,
  LogLevel,
  Option,
  Tracer
} from "effect"
import * as Setting from "../Setting.ts"
import * as LogValue from "./LogValue.ts"
import { isTraced } from "./Tracer.ts"

/** The values of `LOG_LEVEL`. */
const levels = {
  trace: LogLevel.Trace,
  debug: LogLevel.Debug,
  info: LogLevel.Info,
  warning: LogLevel.Warning,
  error: LogLevel.Error,
  fatal: LogLevel.Fatal
} as const

/** A value of `LOG_LEVEL`. */
export type Level = keyof typeof levels

const isLevel = (word: string): word is Level => Object.hasOwn(levels, word)

export const config: Config.Config<Level> = Setting.declare<Level>(
  "LOG_LEVEL",
  {
    description: "Least severity that is logged, in upper or lower case",
    allowed: `one of ${Object.keys(levels).join(", ")} (warn is warning)`,
    default: "info",
    shown: "info"
  },
  text => {
    const word = text.toLowerCase()
    return Option.fromNullable(isLevel(word) ? word : word === "warn" ? "warning" : undefined)
  }
)

type Options = Logger.Logger.Options<unknown>

const messageOf = ({ message, cause }: Options): string => {
  const text = Arr.ensure(message).map(LogValue.toText).join(" ")
  return Cause.isEmpty(cause) ? text : [text, LogValue.toText(cause)].filter(part => part !== "").join("\n")
}

/** The annotations of log lines within a traced span. */
const spanAnnotations = (refs: FiberRefs.FiberRefs): Readonly<Record<string, string>> => {
  const context = FiberRefs.getOrDefault(refs, FiberRef.currentContext)
  const span = Option.getOrUndefined(Context.getOption(context, Tracer.ParentSpan))
  if (span === undefined || !isTraced(span)) return {}
  const { traceId, spanId } = span
  return span._tag === "Span" ? { traceId, spanId, span: span.name } : { traceId, spanId }
}

/** The annotations of the fiber, and those of its span if it is traced. */
const annotationsOf = ({ annotations, context }: Options): HashMap.HashMap<string, LogValue.LogValue> =>
  HashMap.union(
    HashMap.fromIterable(Object.entries(spanAnnotations(context))),
    HashMap.map(annotations, LogValue.fromUnknown)
  )

const annotated = (annotations: HashMap.HashMap<string, LogValue.LogValue>) =>
  HashMap.isEmpty(annotations) ? {} : { annotations: Object.fromEntries(annotations) }

const fields = (options: Options) => ({
  level: options.logLevel.label,
  message: messageOf(options),
  timestamp: options.date.toISOString(),
  fiber: FiberId.threadName(options.fiberId),
  ...annotated(annotationsOf(options)),
  ...(List.isNil(options.spans)
    ? {}
    : {
        spans: Object.fromEntries(
          List.toArray(options.spans).map(span => [span.label, options.date.getTime() - span.startTime])
        )
      })
})

/**
 * A log entry as one line of JSON: `level`, `message`, `timestamp` and `fiber`, then `annotations` (with `traceId`,
 * `spanId` and `span` while tracing is on) and `spans` (milliseconds by log span) if there are any. It never throws. A
 * cause is part of the message.
 */
export const toLine = (options: Options): string =>
  Inspectable.withRedactableContext(options.context, () => JSON.stringify(fields(options)))

export const json: Logger.Logger<unknown, void> = Logger.withConsoleLog(Logger.make(toLine))

const readable = Logger.prettyLogger()

const simplified = (options: Options): Options => ({
  ...options,
  message: Arr.ensure(options.message).map(part => (typeof part === "string" ? part : LogValue.toText(part))),
  annotations: annotationsOf(options)
})

/** Logs readable text, with colors on a terminal. */
export const pretty: Logger.Logger<unknown, void> = Logger.make(options => {
  try {
    readable.log(Inspectable.withRedactableContext(options.context, () => simplified(options)))
  } catch {
    json.log(options)
  }
})

/** Logs from `level` on. */
export const layer = (options: { readonly level: Level; readonly format: "json" | "pretty" }): Layer.Layer<never> =>
  Layer.merge(
    Logger.replace(Logger.defaultLogger, options.format === "json" ? json : pretty),
    Logger.minimumLogLevel(levels[options.level])
  )
