/** What is stored beside what the user has typed, where both have changed. */
import { format } from "../Json/JsonText.ts"
import { Dialog } from "../Widgets/Dialog.tsx"
import { Diff } from "../Widgets/Diff.tsx"
import { dateAndTime, isolated } from "../Widgets/Text.ts"
import type { TextEntry } from "./Entries.ts"

interface Props {
  readonly base: TextEntry
  /** The entry as it is now; `undefined` where it was deleted. */
  readonly stored: TextEntry | undefined
  readonly draft: string
  readonly onClose: () => void
  readonly onOverwrite: () => void
  readonly onTake: () => void
}

export const Conflict = ({ base, draft, onClose, onOverwrite, onTake, stored }: Props) => (
  <Dialog title="Two changes of the same entry" isWide onClose={onClose}>
    <div class="dialog-body">
      <p>
        You have edited version {base.version}.{" "}
        {stored === undefined
          ? "Meanwhile the entry was deleted."
          : `Meanwhile ${isolated(stored.updatedBy)} wrote version ${stored.version}, ${dateAndTime(stored.updatedAt)}.`}{" "}
        Nothing of yours was saved.
      </p>
      <Diff
        left={stored === undefined ? "" : format(stored.value)}
        right={draft}
        leftTitle={
          stored === undefined
            ? "Stored: nothing"
            : `Stored: version ${stored.version} by ${isolated(stored.updatedBy)}`
        }
        rightTitle={`Yours: from version ${base.version}`}
      />
      <div class="actions">
        <button type="button" class="button primary" onClick={onOverwrite}>
          {stored === undefined ? "Create it again with mine" : `Replace version ${stored.version} by mine`}
        </button>
        <button type="button" class="button" onClick={onTake}>
          {stored === undefined ? "Leave it deleted" : "Take the stored one"}
        </button>
        <button type="button" class="button quiet" onClick={onClose}>
          Keep editing
        </button>
      </div>
    </div>
  </Dialog>
)
