/** Compares the stored entry with the user's changes, if another client has changed it since. */
import { format } from "../JsonText.ts"
import { Dialog } from "../Widgets/Dialog.tsx"
import { Diff } from "../Widgets/Diff.tsx"
import { dateAndTime, isolated } from "../Widgets/Text.ts"
import { type Expiry, kept, textOf } from "./Expiry.ts"
import type { TextEntry } from "./TextEntry.ts"

interface Props {
  readonly base: TextEntry
  /** The entry as it is now; `undefined` if it is absent. */
  readonly stored: TextEntry | undefined
  /** What has happened to the entry if it is absent. */
  readonly absence: string
  /** The user's value and expiry. */
  readonly text: string
  readonly expiry: Expiry
  readonly onClose: () => void
  readonly onOverwrite: () => void
  readonly onTake: () => void
}

/** When both expire. An expiry that the user has not changed is that of the stored entry. */
const Expiries = ({ base, expiry, stored }: Pick<Props, "base" | "expiry" | "stored">) => {
  const theirs = stored === undefined ? "" : textOf(kept, stored.expiresAt)
  const yours = textOf(expiry, (stored ?? base).expiresAt)
  return theirs === yours ? (
    <p class="muted">{yours === "never" ? "Neither of them expires." : `Both expire: ${yours}.`}</p>
  ) : (
    <Diff left={theirs} right={yours} leftTitle="Stored: expires" rightTitle="Yours: expires" />
  )
}

export const Conflict = ({ absence, base, expiry, onClose, onOverwrite, onTake, stored, text }: Props) => {
  const theirs = stored === undefined ? "" : format(stored.value)
  return (
    <Dialog title="Edit conflict" isWide onClose={onClose}>
      <div class="dialog-body">
        <p>
          Your changes are based on version {base.version}.{" "}
          {stored === undefined
            ? `The entry ${absence}.`
            : `${isolated(stored.updatedBy)} wrote version ${stored.version} on ${dateAndTime(stored.updatedAt)}.`}{" "}
          Your changes are not saved.
        </p>
        {text === theirs ? (
          <p>The values are the same.</p>
        ) : (
          <Diff
            left={theirs}
            right={text}
            leftTitle={
              stored === undefined
                ? "Stored: absent"
                : `Stored: version ${stored.version} by ${isolated(stored.updatedBy)}`
            }
            rightTitle={`Yours: based on version ${base.version}`}
          />
        )}
        <Expiries base={base} expiry={expiry} stored={stored} />
        <div class="actions">
          <button type="button" class="button primary" onClick={onOverwrite}>
            {stored === undefined ? "Create it again" : `Overwrite version ${stored.version}`}
          </button>
          <button type="button" class="button" onClick={onTake}>
            {stored === undefined ? "Discard your changes" : "Use the stored value"}
          </button>
          <button type="button" class="button quiet" onClick={onClose}>
            Keep editing
          </button>
        </div>
      </div>
    </Dialog>
  )
}
