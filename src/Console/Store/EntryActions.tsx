/** The actions below the value of an entry: its expiry, and buttons to delete, format, discard and save. */
import { IconButton } from "../Widgets/IconButton.tsx"
import { dateAndTime } from "../Widgets/Text.ts"
import { type EntryDraft, isDirty } from "./EntryDraft.ts"
import type { Expiry } from "./Expiry.ts"
import { ExpiryField } from "./ExpiryField.tsx"

interface Props {
  readonly draft: EntryDraft
  readonly isWritable: boolean
  readonly isDeleted: boolean
  readonly onExpiry: (expiry: Expiry) => void
  readonly onDelete: () => void
  readonly onFormat: () => void
  readonly onDiscard: () => void
  readonly onSave: () => void
}

export const EntryActions = (props: Props) => {
  const { draft, isDeleted, isWritable } = props
  const expiresAt = draft.base?.expiresAt ?? null
  const isChanged = isDirty(draft)
  if (!isWritable) {
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
      <ExpiryField expiry={draft.expiry} stored={expiresAt} onChange={props.onExpiry} />
      <span class="grow" />
      <IconButton icon="trash" label="Delete" tone="danger" isDisabled={isDeleted} onClick={props.onDelete} />
      <button type="button" class="button" onClick={props.onFormat}>
        Format
      </button>
      <button type="button" class="button" disabled={!isChanged} onClick={props.onDiscard}>
        Discard
      </button>
      <button type="button" class="button primary" disabled={!isChanged || draft.isBusy} onClick={props.onSave}>
        Save
      </button>
    </div>
  )
}
