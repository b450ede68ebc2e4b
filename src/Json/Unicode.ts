/** Names and texts have to be Unicode, which UTF-16 in escapes of JSON need not be. */

/** Where a value holds half of a surrogate pair, as a way of member names and places; nothing where it holds none. */
export const illFormedAt = (value: unknown): ReadonlyArray<string> | undefined => {
  if (typeof value === "string") return value.isWellFormed() ? undefined : []
  if (typeof value !== "object" || value === null) return undefined
  for (const [name, member] of Object.entries(value)) {
    const place = name.isWellFormed() ? illFormedAt(member) : []
    if (place !== undefined) return [name.toWellFormed(), ...place]
  }
  return undefined
}

/** Whether JSON text may stand for such a value: in UTF-8 only an escape can say a surrogate. */
export const mayBeIllFormed = (text: string): boolean => /\\u[dD][89a-fA-F]/.test(text)
