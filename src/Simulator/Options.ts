import type { Duration, Redacted } from "effect"

/** Bounds of all that the simulator keeps; what happens at each bound is said with it. */
export interface Limits {
  /** Instances alive; creating one more is answered 429. */
  readonly instances: number
  /** Events kept of each instance; older ones can no longer be replayed. */
  readonly history: number
  /** Messages that wait for their turn in one instance; one more is answered with an `error` event. */
  readonly waitingTurns: number
  /** Files of one workspace; one more is refused with an `error` event. */
  readonly files: number
  /** Bytes of all iterations in one workspace together; the oldest iterations of a changed file make room. */
  readonly workspaceBytes: number
  /** Iterations kept of each file; the oldest go first. */
  readonly iterations: number
  /** Bytes of a request body (413 above) and of a WebSocket frame (closed with 1009 above). */
  readonly bodyBytes: number
  /** Idempotency keys remembered; the oldest is forgotten first. */
  readonly idempotencyKeys: number
  /** Rules of faults at a time; one more is refused. */
  readonly rules: number
  /** How long a connection may take nothing while an instance waits for it; then it is closed with 1013. */
  readonly stall: Duration.DurationInput
}

export const defaultLimits: Limits = {
  instances: 100,
  history: 10_000,
  waitingTurns: 16,
  files: 500,
  workspaceBytes: 16 * 1024 * 1024,
  iterations: 1000,
  bodyBytes: 1024 * 1024,
  idempotencyKeys: 1000,
  rules: 100,
  stall: "10 seconds"
}

/** How a generated text travels; `accept` lets the request's Accept header choose, and is Server-Sent Events else. */
export type Format = "accept" | "sse" | "text"

/** What a simulator may be started with; everything has a default. */
export interface Options {
  /** Ports on 127.0.0.1; 0, the default, takes a free one. */
  readonly ports?: { readonly platform?: number; readonly inference?: number; readonly control?: number }
  /** The bearer that the agent platform asks for, everywhere but at /health; none by default. */
  readonly platformKey?: Redacted.Redacted
  /** The bearer that the inference proxy asks for, everywhere but at /health; none by default. */
  readonly inferenceKey?: Redacted.Redacted
  /** Decides all that is left to chance; the same seed and requests give the same faults. */
  readonly seed?: string | number
  /** Time between two events of a turn and between two pieces of a generated text; zero by default. */
  readonly pace?: Duration.DurationInput
  readonly format?: Format
  /** Sizes in bytes, used in rotation, at which a generated text is cut, also inside a character. */
  readonly chunkSizes?: readonly [number, ...Array<number>]
  readonly limits?: Partial<Limits>
}
