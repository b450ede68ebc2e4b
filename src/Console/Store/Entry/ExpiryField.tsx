/** A field for the expiry of an entry. */
import { useId } from "preact/hooks"
import { dateAndTime } from "../../Widgets/Text.ts"
import { chosen, type Expiry, type Unit, unitMs } from "./Expiry.ts"

interface Props {
  readonly expiry: Expiry
  /** When the stored entry expires, in epoch milliseconds. */
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
        value={expiry.kind === "kept" && stored === null ? "never" : expiry.kind}
        onChange={({ currentTarget: { value } }) => onChange(chosen(value as Expiry["kind"], stored))}
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
