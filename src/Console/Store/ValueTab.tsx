/** The value and the expiry of an entry in their fields, the actions, and a warning if the entry has changed. */
import { useId } from "preact/hooks"
import { canWrite } from "../Service/Connection.ts"
import { Button, Icon, IconButton } from "../Widgets/Controls.tsx"
import { JsonEditor } from "../Widgets/JsonEditor.tsx"
import { dateAndTime, isolated } from "../Widgets/Text.ts"
import type { EntryEditing } from "./EntryEditing.ts"
import { chosen, type Expiry, isBehind, isDirty, type Unit, unitMs } from "./OpenEntry.ts"

interface ExpiryProps {
  readonly expiry: Expiry
  readonly stored: number | null
  readonly onChange: (expiry: Expiry) => void
}

export const ExpiryField = ({ expiry, onChange, stored }: ExpiryProps) => {
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

interface Props {
  readonly editing: EntryEditing
  /** False for a key that only reads, and for records of the gateway. */
  readonly isEditable: boolean
  readonly onCompare: () => void
  readonly onDelete: () => void
  readonly onDiscard: () => void
  readonly onSave: () => void
}

const EntryActions = ({ editing: { dispatch, draft, stored }, isEditable, onDelete, onDiscard, onSave }: Props) => {
  const expiresAt = draft.base?.expiresAt ?? null
  const isChanged = isDirty(draft)
  if (!isEditable) {
    return (
      <div class="pane-actions">
        <p class="muted">
          {expiresAt === null ? "Never expires." : `Expires ${dateAndTime(expiresAt)}.`}
          {!canWrite.value && " This key is read-only."}
        </p>
      </div>
    )
  }
  return (
    <div class="pane-actions">
      <ExpiryField
        expiry={draft.expiry}
        stored={expiresAt}
        onChange={expiry => dispatch({ type: "expirySet", expiry })}
      />
      <span class="grow" />
      <IconButton icon="trash" label="Delete" tone="danger" isDisabled={stored === "absent"} onClick={onDelete} />
      <Button text="Format" onClick={() => dispatch({ type: "formatted" })} />
      <Button text="Discard" isDisabled={!isChanged} onClick={onDiscard} />
      <Button text="Save" look="primary" isDisabled={!isChanged || draft.isBusy} onClick={onSave} />
    </div>
  )
}

const changeOf = ({ absence, draft, stored }: EntryEditing): string =>
  typeof stored !== "object"
    ? `This entry ${absence} while you were editing.`
    : `${isolated(stored.updatedBy)} changed this entry to version ${stored.version} while you were editing version ${draft.base?.version}.`

export const ValueTab = (props: Props) => {
  const { editing, isEditable, onCompare, onSave } = props
  const { absence, dispatch, draft, stored } = editing
  const isOutdated = isBehind(draft, stored)
  return (
    <>
      {isOutdated && (
        <p class="banner warn" role="alert">
          <Icon name="warning" />
          <span class="grow">{changeOf(editing)}</span>
          <Button text="Compare" look="small" onClick={onCompare} />
        </p>
      )}
      {stored === "absent" && !isOutdated && (
        <p class="banner warn" role="status">
          This entry {absence}.
        </p>
      )}
      <JsonEditor
        label="Value"
        text={draft.text}
        isReadOnly={!isEditable}
        problem={draft.problem}
        onInput={text => dispatch({ type: "typed", text })}
        onSave={onSave}
      />
      <EntryActions {...props} />
    </>
  )
}
