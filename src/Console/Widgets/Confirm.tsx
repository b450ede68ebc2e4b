/** Asks before an action that cannot be undone. */
import type { ComponentChildren } from "preact"
import { Dialog } from "./Dialog.tsx"

interface Props {
  readonly title: string
  readonly action: string
  readonly onConfirm: () => void
  readonly onClose: () => void
  readonly children: ComponentChildren
}

export const Confirm = ({ action, children, onClose, onConfirm, title }: Props) => (
  <Dialog title={title} onClose={onClose}>
    <div class="dialog-body">
      <p>{children}</p>
      <div class="actions">
        <button type="button" class="button danger" onClick={onConfirm}>
          {action}
        </button>
        <button type="button" class="button" data-first onClick={onClose}>
          Cancel
        </button>
      </div>
    </div>
  </Dialog>
)
