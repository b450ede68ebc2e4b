/** A tracer of the shop's own, which remembers the names of spans. */
import { type Context, type Exit, Layer, type Option, Tracer } from "effect"

export const names = new Set<string>()

let count = 0

const tracer = Tracer.make({
  span: (name, parent, context, links, startTime, kind) => {
    names.add(name)
    const attributes = new Map<string, unknown>()
    const ids = { spanId: String(++count).padStart(16, "0"), traceId: "5".repeat(32) }
    return {
      ...ids,
      _tag: "Span",
      name,
      parent: parent as Option.Option<Tracer.AnySpan>,
      context: context as Context.Context<never>,
      links: [...links],
      kind,
      attributes,
      sampled: true,
      status: { _tag: "Started", startTime },
      attribute: (key: string, value: unknown) => void attributes.set(key, value),
      event: () => {},
      addLinks: () => {},
      end: (_time: bigint, _exit: Exit.Exit<unknown, unknown>) => {}
    }
  },
  context: f => f()
})

export const layer: Layer.Layer<never> = Layer.setTracer(tracer)
