import { Schema } from "effect"

/** The benchmark cannot continue. */
export class BenchFailed extends Schema.TaggedError<BenchFailed>()("BenchFailed", { reason: Schema.String }) {
  override get message(): string {
    return this.reason
  }
}
