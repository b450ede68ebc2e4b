/** The value of an entry in the editor, with a warning if another client has changed it. */
import { canWrite } from "../Service/Connection.ts"
import { Icon } from "../Widgets/Icon.tsx"
import { JsonEditor } from "../Widgets/JsonEditor.tsx"
import { isolated } from "../Widgets/Text.ts"
import { EntryActions } from "./EntryActions.tsx"
import { type DraftEvent, type EntryDraft, isBehind } from "./EntryDraft.ts"
import type { TextEntry } from "./TextEntry.ts"

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
          <button type="button" class="button small" onClick={onCompare}>
            Compare
          </button>
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
