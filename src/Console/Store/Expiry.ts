/** When an entry expires, as the user sets it. */

/** Never, at the stored time (epoch milliseconds), or some time after the write. */
export type Expiry =
  | { readonly kind: "never" }
  | { readonly kind: "kept"; readonly at: number }
  | { readonly kind: "after"; readonly amount: number; readonly unit: Unit }

export type Unit = "minutes" | "hours" | "days"

/** The length of each unit in milliseconds. */
export const unitMs: Readonly<Record<Unit, number>> = { minutes: 60_000, hours: 3_600_000, days: 86_400_000 }

/** The expiry of a stored entry. */
export const expiryOf = (expiresAt: number | null): Expiry =>
  expiresAt === null ? { kind: "never" } : { kind: "kept", at: expiresAt }

/** The expiry of an entry that is written: after a duration, at a time in epoch milliseconds, or never. */
export type WrittenExpiry = { readonly ttlMs: number } | { readonly expiresAt: number } | Record<string, never>

/** The expiry as it is sent. The service's clock decides when a relative time ends. */
export const writtenOf = (expiry: Expiry): WrittenExpiry => {
  switch (expiry.kind) {
    case "never":
      return {}
    case "kept":
      return { expiresAt: expiry.at }
    case "after":
      return { ttlMs: Math.round(expiry.amount * unitMs[expiry.unit]) }
  }
}
