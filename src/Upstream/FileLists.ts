/**
 * Lists of files and of iterations in answers, which may be long. They are checked by hand, since a schema costs a
 * hundred times as much, and in batches, between which the event loop runs.
 */
import { Effect } from "effect"
import { yieldToEventLoop } from "../EventLoop.ts"
import * as UpstreamHttp from "./UpstreamHttp.ts"
import type { FileEntry, FileIteration } from "./Workspace.ts"

/** Most entries of a list; a longer one is refused. */
export const mostEntries = 10_000

/** Entries that are checked at a time, which takes about a millisecond. */
const batch = 1000

type Members = Readonly<Record<string, unknown>>

const isObject = (value: unknown): value is Members =>
  typeof value === "object" && value !== null && !Array.isArray(value)

const isText = (value: unknown): value is string => typeof value === "string"

const isTime = (value: unknown): value is number => typeof value === "number" && Number.isFinite(value)

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0

const isType = (value: unknown): value is "file" | "directory" => value === "file" || value === "directory"

/** An entry, or the name of the member that is wrong; empty if it is no object. */
type Checked<A> = { readonly entry: A } | { readonly wrong: string }

const checks = { type: isType, size: isCount, iteration: isCount, timestamp: isTime, hash: isText }

const optionalMembers = ["type", "size", "iteration", "timestamp", "hash"] as const

/** A {@link FileEntry} without unknown members. */
export const fileEntry = (value: unknown): Checked<FileEntry> => {
  if (!isObject(value)) return { wrong: "" }
  if (!isText(value.path)) return { wrong: "path" }
  const entry: Record<string, unknown> & { path: string } = { path: value.path }
  for (const name of optionalMembers) {
    if (!Object.hasOwn(value, name)) continue
    if (!checks[name](value[name])) return { wrong: name }
    entry[name] = value[name]
  }
  return { entry }
}

/** A {@link FileIteration} without unknown members. */
export const fileIteration = (value: unknown): Checked<FileIteration> => {
  if (!isObject(value)) return { wrong: "" }
  const { iteration, timestamp, size, hash } = value
  if (!isCount(iteration)) return { wrong: "iteration" }
  if (!isTime(timestamp)) return { wrong: "timestamp" }
  if (!isCount(size)) return { wrong: "size" }
  return isText(hash) ? { entry: { iteration, timestamp, size, hash } } : { wrong: "hash" }
}

/** Reads a list, which is the answer itself or its member `name`. */
export const listOf =
  <A>(name: string, check: (value: unknown) => Checked<A>): UpstreamHttp.Read<ReadonlyArray<A>> =>
  data =>
    Effect.gen(function* () {
      const isBare = Array.isArray(data)
      const list: unknown = isBare ? data : isObject(data) ? data[name] : undefined
      if (!Array.isArray(list)) return yield* UpstreamHttp.unexpectedShape(isObject(data) ? name : "")
      if (list.length > mostEntries) {
        return yield* new UpstreamHttp.Unexpected({
          reason: "too_large",
          message: `has ${list.length} entries; the limit is ${mostEntries}`
        })
      }
      const entries: Array<A> = []
      for (let index = 0; index < list.length; index++) {
        if (index > 0 && index % batch === 0) yield* yieldToEventLoop
        const checked = check(list[index])
        if ("wrong" in checked) {
          const path = [...(isBare ? [] : [name]), index, ...(checked.wrong === "" ? [] : [checked.wrong])]
          return yield* UpstreamHttp.unexpectedShape(path.join("."))
        }
        entries.push(checked.entry)
      }
      return entries
    })

/** The answer to a request for a list of files. */
export const files = listOf("entries", fileEntry)

/** The answer to a request for a file's history. */
export const history = listOf("iterations", fileIteration)
