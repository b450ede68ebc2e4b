/** The ids of an agent's messages and calls, within the limit that ids have in the gateway. Pure. */
import { hash } from "node:crypto"
import { identifierChars } from "../PlatformEvent.ts"

/** An id of an agent; one that is too long is shortened, always to the same. Undefined if it is none. */
export const identifierOf = (id: unknown): string | undefined => {
  if (typeof id === "number" && Number.isFinite(id)) return String(id)
  if (typeof id !== "string" || id === "") return undefined
  return id.length <= identifierChars ? id : hash("sha256", id, "base64url")
}
