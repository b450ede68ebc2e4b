/** What a JSON Web Token says of its bearer. The page shows it; only the service verifies it. */

export interface Claims {
  readonly tenant: string
  /** The user. */
  readonly sub: string
}

const decoded = (part: string): string =>
  new TextDecoder().decode(
    Uint8Array.from(atob(part.replaceAll("-", "+").replaceAll("_", "/")), character => character.charCodeAt(0))
  )

/** The claims of a token; `undefined` where it is none, or names no tenant. */
export const claimsOf = (token: string): Claims | undefined => {
  try {
    const { sub, tenant }: Partial<Record<string, unknown>> = JSON.parse(decoded(token.split(".")[1] ?? ""))
    return typeof tenant === "string" && typeof sub === "string" ? { tenant, sub } : undefined
  } catch {
    return undefined
  }
}
