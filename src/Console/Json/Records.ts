/** Entries and changes of the service, whose values stay JSON text as written. */
import type { ReadMembers } from "../../Client/EntryLines.ts"
import { elementsOf, membersOf, problemOf } from "./JsonText.ts"

/** Parses a valid entry or change, except its `value`. */
export const recordOf = (text: string): never =>
  Object.fromEntries(
    [...membersOf(text)].map(([name, value]) => [name, name === "value" ? value : JSON.parse(value)])
  ) as never

/** The members of a line of an import, with the value as text. */
export const readMembers: ReadMembers<string> = text => {
  const problem = problemOf(text)
  if (problem !== undefined) return { problem: `column ${problem.offset + 1}: ${problem.message}` }
  return text.trimStart().startsWith("{") ? { members: recordOf(text) } : { problem: "it is not an object" }
}

/** Parses a frame of the change feed, except the values of changes. Throws if the text is not JSON. */
export const parseChanges = (text: string): unknown => {
  const parsed: unknown = JSON.parse(text)
  if (typeof parsed !== "object" || parsed === null || !("changes" in parsed)) return parsed
  return { ...parsed, changes: elementsOf(membersOf(text).get("changes")!).map(recordOf) }
}
