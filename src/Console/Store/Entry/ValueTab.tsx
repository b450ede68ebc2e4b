/** The value of an entry in the editor, and below it the actions. A warning says that another client has changed it. */
import { canWrite } from "../../Service/Connection.ts"
import { Button, IconButton } from "../../Widgets/Button.tsx"
import { Icon } from "../../Widgets/Icon.tsx"
import { JsonEditor } from "../../Widgets/JsonEditor.tsx"
import { dateAndTime, isolated } from "../../Widgets/Text.ts"
import type { TextEntry } from "../TextEntry.ts"
import { type DraftEvent, type EntryDraft, isBehind, isDirty } from "./EntryDraft.ts"
import type { Expiry } from "./Expiry.ts"
import { ExpiryField } from "./ExpiryField.tsx"

interface ActionsProps {
  readonly draft: EntryDraft
  readonly isWritable: boolean
  readonly isDeleted: boolean
  readonly onExpiry: (expiry: Expiry) => void
  readonly onDelete: () => void
  readonly onFormat: () => void
  readonly onDiscard: () => void
  readonly onSave: () => void
}

export const EntryActions = (props: ActionsProps) => {
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
      <Button text="Format" onClick={props.onFormat} />
      <Button text="Discard" isDisabled={!isChanged} onClick={props.onDiscard} />
      <Button text="Save" look="primary" isDisabled={!isChanged || draft.isBusy} onClick={props.onSave} />
    </div>
  )
}

interface Props {
  readonly draft: EntryDraft
  readonly stored: TextEntry | "absent"
  /** What has happened to the entry if it is absent. */
  readonly absence: string
  readonly dispatch: (event: DraftEvent) => void
  readonly onCompare: () => void
  readonly onDelete: () => void
  readonly onDiscard: () => void
  readonly onSave: () => void
}

const changeOf = ({ absence, draft, stored }: Pick<Props, "absence" | "draft" | "stored">): string =>
  stored === "absent"
    ? `This entry ${absence} while you were editing.`
    : `${isolated(stored.updatedBy)} changed this entry to version ${stored.version} while you were editing version ${draft.base?.version}.`

export const ValueTab = (props: Props) => {
  const { absence, dispatch, draft, onCompare, onDelete, onDiscard, onSave, stored } = props
  const isOutdated = isBehind(draft, stored)
  return (
    <>
      {isOutdated && (
        <p class="banner warn" role="alert">
          <Icon name="warning" />
          <span class="grow">{changeOf(props)}</span>
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
      <EntryActions
        draft={draft}
        isWritable={canWrite.value}
        isDeleted={stored === "absent"}
        onExpiry={expiry => dispatch({ type: "expirySet", expiry })}
        onDelete={onDelete}
        onFormat={() => dispatch({ type: "formatted" })}
        onDiscard={onDiscard}
        onSave={onSave}
      />
    </>
  )
}
