import { Schema } from "effect"

/** The database cannot be opened; it was not changed. */
export class StoreRefused extends Schema.TaggedError<StoreRefused>()("StoreRefused", {
  /** The file or directory that prevents it. */
  file: Schema.String,
  /** Why, as the end of a sentence that begins with the file's name. */
  reason: Schema.String
}) {
  override get message(): string {
    return `${this.file} ${this.reason}`
  }
}
