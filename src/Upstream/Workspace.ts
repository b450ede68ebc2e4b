/**
 * Files of an agent's workspace, in the form of the agent platform.
 */
import { Order, Schema } from "effect"

const Count = Schema.Int.pipe(Schema.nonNegative())

/** An immutable snapshot of one file at one moment. */
export const FileIteration = Schema.Struct({
  /** Increases monotonically within the path. */
  iteration: Count,
  /** Epoch milliseconds at which the change was persisted. */
  timestamp: Schema.Finite,
  /** Bytes of the content. */
  size: Count,
  hash: Schema.String
})
export type FileIteration = (typeof FileIteration)["Type"]

/** A file or directory in a list. */
export const FileEntry = Schema.Struct({
  /** Relative to the workspace. */
  path: Schema.String,
  type: Schema.optionalWith(Schema.Literal("file", "directory"), { exact: true }),
  /** Bytes of the content. */
  size: Schema.optionalWith(Count, { exact: true }),
  iteration: Schema.optionalWith(Count, { exact: true }),
  /** Epoch milliseconds of the last change. */
  timestamp: Schema.optionalWith(Schema.Finite, { exact: true }),
  hash: Schema.optionalWith(Schema.String, { exact: true })
})
export type FileEntry = (typeof FileEntry)["Type"]

/** The content of a file, now or at an iteration. */
export const FileContent = Schema.Struct({
  content: Schema.String,
  /** The encoding of the file's bytes. */
  encoding: Schema.optionalWith(Schema.Literal("utf-8", "base64"), { default: () => "utf-8" as const }),
  iteration: Schema.optionalWith(Count, { exact: true }),
  size: Schema.optionalWith(Count, { exact: true }),
  hash: Schema.optionalWith(Schema.String, { exact: true })
})
export type FileContent = (typeof FileContent)["Type"]

/** The order of iterations, the oldest first. */
export const byIteration: Order.Order<FileIteration> = Order.mapInput(Order.number, ({ iteration }) => iteration)
