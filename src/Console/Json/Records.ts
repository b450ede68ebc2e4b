/** Records of the service as they are sent, of which the value stays the text that was written. */
import type { ReadMembers } from "../../Client/EntryLines.ts"
import { elementsOf, membersOf, problemOf } from "./JsonText.ts"

/** A valid entry or change, of which only `value` stays text. */
export const recordOf = (text: string): never =>
  Object.fromEntries(
    [...membersOf(text)].map(([name, value]) => [name, name === "value" ? value : JSON.parse(value)])
  ) as never

/** The members of a line that the user gives, with the value as text. */
export const readMembers: ReadMembers<string> = text => {
  const problem = problemOf(text)
  if (problem !== undefined) return { problem: `column ${problem.offset + 1}: ${problem.message}` }
  return text.trimStart().startsWith("{") ? { members: recordOf(text) } : { problem: "it is not an object" }
}

/** What the change feed sends, with the values of changes as text. Throws where the text is no JSON. */
export const parseChanges = (text: string): unknown => {
  const parsed: unknown = JSON.parse(text)
  if (typeof parsed !== "object" || parsed === null || !("changes" in parsed)) return parsed
  return { ...parsed, changes: elementsOf(membersOf(text).get("changes")!).map(recordOf) }
}
