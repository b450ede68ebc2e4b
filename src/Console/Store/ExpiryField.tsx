/** When an entry expires: never, as it does, or at another time. */
import { useId } from "preact/hooks"
import { dateAndTime } from "../Widgets/Text.ts"
import type { WrittenExpiry } from "./Entries.ts"

/** What the user has chosen. */
export type Expiry =
  | { readonly kind: "never" }
  | { readonly kind: "kept"; readonly at: number }
  | { readonly kind: "after"; readonly amount: number; readonly unit: Unit }

type Unit = "minutes" | "hours" | "days"

const unitMs: Readonly<Record<Unit, number>> = { minutes: 60_000, hours: 3_600_000, days: 86_400_000 }

export const expiryOf = (expiresAt: number | null): Expiry =>
  expiresAt === null ? { kind: "never" } : { kind: "kept", at: expiresAt }

/** As it is sent. What is counted from now on is counted by the clock of the service. */
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

interface Props {
  readonly expiry: Expiry
  /** When the stored entry expires. */
  readonly stored: number | null
  readonly onChange: (expiry: Expiry) => void
}

export const ExpiryField = ({ expiry, onChange, stored }: Props) => {
  const field = useId()
  return (
    <div class="field-row">
      <label for={field}>Expires</label>
      <select
        id={field}
        value={expiry.kind}
        onChange={({ currentTarget: { value } }) => {
          if (value === "never") onChange({ kind: "never" })
          if (value === "kept" && stored !== null) onChange({ kind: "kept", at: stored })
          if (value === "after") onChange({ kind: "after", amount: 1, unit: "hours" })
        }}
      >
        <option value="never">never</option>
        {stored !== null && <option value="kept">{dateAndTime(stored)}</option>}
        <option value="after">after…</option>
      </select>
      {expiry.kind === "after" && (
        <>
          <input
            type="number"
            aria-label="Amount of time"
            class="narrow"
            min="1"
            value={expiry.amount}
            onInput={({ currentTarget: { valueAsNumber } }) =>
              onChange({ ...expiry, amount: Number.isFinite(valueAsNumber) ? Math.max(0, valueAsNumber) : 0 })
            }
          />
          <select
            aria-label="Unit of time"
            value={expiry.unit}
            onChange={({ currentTarget: { value } }) => onChange({ ...expiry, unit: value as Unit })}
          >
            {Object.keys(unitMs).map(unit => (
              <option value={unit}>{unit}</option>
            ))}
          </select>
        </>
      )}
    </div>
  )
}
