import { Context, type Effect } from "effect"

/** The trace that the current fiber works for. */
export class Tracer extends Context.Tag("causeway/Tracer")<
  Tracer,
  {
    /** The active span's trace id, or 32 random hexadecimal digits where there is none. */
    readonly currentTraceId: Effect.Effect<string>
  }
>() {}
