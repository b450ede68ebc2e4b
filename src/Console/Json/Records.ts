/** Records of the service as they are sent, of which the value stays the text that was written. */
import { elementsOf, membersOf } from "./JsonText.ts"

/** A valid entry or change, of which only `value` stays text. */
export const recordOf = (text: string): never =>
  Object.fromEntries(
    [...membersOf(text)].map(([name, value]) => [name, name === "value" ? value : JSON.parse(value)])
  ) as never

/** What the change feed sends, with the values of changes as text. Throws where the text is no JSON. */
export const parseChanges = (text: string): unknown => {
  const parsed: unknown = JSON.parse(text)
  if (typeof parsed !== "object" || parsed === null || !("changes" in parsed)) return parsed
  return { ...parsed, changes: elementsOf(membersOf(text).get("changes")!).map(recordOf) }
}
