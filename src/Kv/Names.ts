/**
 * Rules for namespaces, keys and actors.
 */

/** What makes a name unusable, in words for the client, or `undefined` when nothing does. */
export const problemOfName = (kind: "namespace" | "key", name: string, maxBytes: number): string | undefined => {
  if (name === "") return `${kind} is empty; it takes 1 to ${maxBytes} bytes of UTF-8`
  // URL parsers fold these segments away, so an entry of this name could not be read back.
  if (name === "." || name === "..") return `${kind} must not be "${name}"`
  return problemOfText(kind, name) ?? problemOfLength(kind, name, maxBytes)
}

/** What keeps a text from being stored or compared by every backend, or `undefined`. */
export const problemOfText = (kind: string, text: string): string | undefined => {
  if (text.includes("\u0000")) return `${kind} must not contain U+0000`
  return text.isWellFormed() ? undefined : `${kind} must not contain a lone surrogate`
}

const problemOfLength = (kind: string, text: string, maxBytes: number): string | undefined => {
  const bytes = byteLength(text)
  return bytes > maxBytes ? `${kind} has ${bytes} bytes of UTF-8; the limit is ${maxBytes}` : undefined
}

/** What makes an actor unusable, or `undefined`. An empty actor is as good as none. */
export const problemOfActor = (actor: string, maxBytes: number): string | undefined =>
  problemOfText("actor", actor) ?? problemOfLength("actor", actor, maxBytes)

/** The length of a text in bytes of UTF-8. */
export const byteLength = (text: string): number => Buffer.byteLength(text, "utf8")

/** The actor of the deletes that expiry makes. */
export const expiryActor = "expiry"
