/** When an entry expires, as the user sets it. */
import { dateAndTime } from "../../Widgets/Text.ts"
import type { WrittenExpiry } from "../TextEntry.ts"

/** As the stored entry does, which for a new entry is never; never; or some time after the write. */
export type Expiry =
  | { readonly kind: "kept" }
  | { readonly kind: "never" }
  | { readonly kind: "after"; readonly amount: number; readonly unit: Unit }

export type Unit = "minutes" | "hours" | "days"

/** The length of each unit in milliseconds. */
export const unitMs: Readonly<Record<Unit, number>> = { minutes: 60_000, hours: 3_600_000, days: 86_400_000 }

/** The expiry that the user has not changed. */
export const kept: Expiry = { kind: "kept" }

/** What a user chooses, given when the stored entry expires (epoch milliseconds; `null` for never). */
export const chosen = (kind: Expiry["kind"], stored: number | null): Expiry => {
  if (kind === "after") return { kind, amount: 1, unit: "hours" }
  return kind === "never" && stored === null ? kept : { kind }
}

/** Whether a write with the expiry changes when the stored entry expires. */
export const isChange = ({ kind }: Expiry, stored: number | null): boolean =>
  kind === "after" || (kind === "never" && stored !== null)

/**
 * The expiry as it is sent, given when the entry that is replaced expires. The service's clock decides when a relative
 * time ends.
 */
export const writtenOf = (expiry: Expiry, stored: number | null): WrittenExpiry => {
  switch (expiry.kind) {
    case "never":
      return {}
    case "kept":
      return stored === null ? {} : { expiresAt: stored }
    case "after":
      return { ttlMs: Math.round(expiry.amount * unitMs[expiry.unit]) }
  }
}

/** What the user can do if the service refuses to keep an expiry that has passed (epoch milliseconds). */
export const adviceAfter = (passed: number): string =>
  `the entry expired on ${dateAndTime(passed)}. Choose when it expires, and save again.`

/** When an entry expires that is written over a stored one, in words. */
export const textOf = (expiry: Expiry, stored: number | null): string => {
  if (expiry.kind === "after") {
    const { amount, unit } = expiry
    return `${amount} ${amount === 1 ? unit.slice(0, -1) : unit} after it is saved`
  }
  return expiry.kind === "never" || stored === null ? "never" : dateAndTime(stored)
}
