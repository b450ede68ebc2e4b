/** The value of an entry in the editor, and below it the actions. A warning says that another client has changed it. */
import { canWrite } from "../../Service/Connection.ts"
import { Button, IconButton } from "../../Widgets/Button.tsx"
import { Icon } from "../../Widgets/Icon.tsx"
import { JsonEditor } from "../../Widgets/JsonEditor.tsx"
import { dateAndTime, isolated } from "../../Widgets/Text.ts"
import { isBehind, isDirty } from "./EntryDraft.ts"
import type { EntryEditing } from "./EntryEditing.ts"
import { ExpiryField } from "./ExpiryField.tsx"

interface Props {
  readonly editing: EntryEditing
  readonly onCompare: () => void
  readonly onDelete: () => void
  readonly onDiscard: () => void
  readonly onSave: () => void
}

/** The expiry, and buttons to delete, format, discard and save. */
const EntryActions = ({ editing: { dispatch, draft, stored }, onDelete, onDiscard, onSave }: Props) => {
  const expiresAt = draft.base?.expiresAt ?? null
  const isChanged = isDirty(draft)
  if (!canWrite.value) {
    return (
      <div class="pane-actions">
        <p class="muted">
          {expiresAt === null ? "Never expires." : `Expires ${dateAndTime(expiresAt)}.`} This key is read-only.
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
  const { editing, onCompare, onSave } = props
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
        isReadOnly={!canWrite.value}
        problem={draft.problem}
        onInput={text => dispatch({ type: "typed", text })}
        onSave={onSave}
      />
      <EntryActions {...props} />
    </>
  )
}
