/** Compares the stored entry with the user's changes, if another client has changed it since. */
import { format } from "../Json/JsonText.ts"
import { Dialog } from "../Widgets/Dialog.tsx"
import { Diff } from "../Widgets/Diff.tsx"
import { dateAndTime, isolated } from "../Widgets/Text.ts"
import type { TextEntry } from "./TextEntry.ts"

interface Props {
  readonly base: TextEntry
  /** The entry as it is now; `undefined` if it was deleted. */
  readonly stored: TextEntry | undefined
  readonly draft: string
  readonly onClose: () => void
  readonly onOverwrite: () => void
  readonly onTake: () => void
}

export const Conflict = ({ base, draft, onClose, onOverwrite, onTake, stored }: Props) => (
  <Dialog title="Edit conflict" isWide onClose={onClose}>
    <div class="dialog-body">
      <p>
        Your changes are based on version {base.version}.{" "}
        {stored === undefined
          ? "The entry has been deleted since."
          : `${isolated(stored.updatedBy)} wrote version ${stored.version} on ${dateAndTime(stored.updatedAt)}.`}{" "}
        Your changes are not saved.
      </p>
      <Diff
        left={stored === undefined ? "" : format(stored.value)}
        right={draft}
        leftTitle={
          stored === undefined
            ? "Stored: deleted"
            : `Stored: version ${stored.version} by ${isolated(stored.updatedBy)}`
        }
        rightTitle={`Yours: based on version ${base.version}`}
      />
      <div class="actions">
        <button type="button" class="button primary" onClick={onOverwrite}>
          {stored === undefined ? "Create it again" : `Overwrite version ${stored.version}`}
        </button>
        <button type="button" class="button" onClick={onTake}>
          {stored === undefined ? "Keep it deleted" : "Use the stored value"}
        </button>
        <button type="button" class="button quiet" onClick={onClose}>
          Keep editing
        </button>
      </div>
    </div>
  </Dialog>
)
