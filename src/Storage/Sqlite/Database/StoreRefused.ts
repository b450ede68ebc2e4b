import { Schema } from "effect"

/** The store cannot be opened as it lies there; nothing of it was changed. */
export class StoreRefused extends Schema.TaggedError<StoreRefused>()("StoreRefused", {
  /** The file or directory that stands in the way. */
  file: Schema.String,
  /** Why, as the end of a sentence that begins with the file's name. */
  reason: Schema.String
}) {
  override get message(): string {
    return `${this.file} ${this.reason}`
  }
}
