/** The claims of a JSON Web Token. The page only shows them; the service verifies the token. */

export interface Claims {
  readonly tenant: string
  /** The user. */
  readonly sub: string
}

const decoded = (part: string): string =>
  new TextDecoder().decode(
    Uint8Array.from(atob(part.replaceAll("-", "+").replaceAll("_", "/")), character => character.charCodeAt(0))
  )

/** The claims of a token; `undefined` if it is not a token or names no tenant. */
export const claimsOf = (token: string): Claims | undefined => {
  try {
    const { sub, tenant }: Partial<Record<string, unknown>> = JSON.parse(decoded(token.split(".")[1] ?? ""))
    return typeof tenant === "string" && typeof sub === "string" ? { tenant, sub } : undefined
  } catch {
    return undefined
  }
}
