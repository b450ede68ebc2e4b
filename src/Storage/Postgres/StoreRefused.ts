import { Schema } from "effect"

/** The store cannot be used in its present state. The message gives the operator the reason. */
export class StoreRefused extends Schema.TaggedError<StoreRefused>()("StoreRefused", { message: Schema.String }) {
  /** The message is for users of the program that it ends. Positions in this code would not help them. */
  override readonly stack = `${this.name}: ${this.message}`
}
