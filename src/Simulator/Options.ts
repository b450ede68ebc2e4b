/** The options and limits of the simulator. */
import type { Duration, Redacted } from "effect"

/** The limits of the simulator. */
export interface Limits {
  /** Instances alive; creating one more is answered 429. */
  readonly instances: number
  /** Events kept of each instance; older ones can no longer be replayed. */
  readonly history: number
  /** Messages that wait in one instance; one more is answered with an `error` event. */
  readonly waitingTurns: number
  /** Files of one workspace; one more is refused with an `error` event. */
  readonly files: number
  /** Bytes of all iterations in a workspace; above, the oldest iterations of a changed file are dropped. */
  readonly workspaceBytes: number
  /** Iterations kept of each file; above, the oldest are dropped. */
  readonly iterations: number
  /** Bytes of a request body (413 above) and of a WebSocket frame (closed with 1009 above). */
  readonly bodyBytes: number
  /** Idempotency keys kept; above, the oldest are dropped. */
  readonly idempotencyKeys: number
  /** How long an instance waits for a slow connection before it is closed with 1013. */
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
  stall: "10 seconds"
}

/** The format of a generated text; `accept` is that of the Accept header, by default Server-Sent Events. */
export type Format = "accept" | "sse" | "text"

export interface Options {
  /** Ports on 127.0.0.1; 0, the default, takes a free one. */
  readonly ports?: { readonly platform?: number; readonly inference?: number }
  /** The bearer token that the agent platform requires, except at /health; none by default. */
  readonly platformKey?: Redacted.Redacted
  /** The bearer token that the inference proxy requires, except at /health; none by default. */
  readonly inferenceKey?: Redacted.Redacted
  /** The same seed and requests give the same faults. */
  readonly seed?: string | number
  /** Time between two events of a turn and between two pieces of a generated text; zero by default. */
  readonly pace?: Duration.DurationInput
  readonly format?: Format
  /** Sizes in bytes, used in rotation, of the pieces of a generated text, which may split characters. */
  readonly chunkSizes?: readonly [number, ...Array<number>]
  readonly limits?: Partial<Limits>
}
