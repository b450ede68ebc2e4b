/** Modal dialogs of the browser. */
import type { ComponentChildren } from "preact"
import { useEffect, useId, useRef } from "preact/hooks"
import { Button, Form, IconButton } from "./Controls.tsx"

interface Props {
  readonly title: string
  readonly onClose: () => void
  readonly children: ComponentChildren
  readonly isWide?: boolean
  /** Submits the form that the dialog is. Without it the dialog is no form. */
  readonly onSubmit?: () => void
}

/** Returns the focus to the element that had it, or to the view, unless the browser or the user has moved it. */
const returnFocus = (dialog: Element | null, opener: Element | null): void => {
  const active = document.activeElement
  if (active !== null && active !== document.body && dialog?.contains(active) !== true) return
  const isPresent = opener instanceof HTMLElement && opener.isConnected && !opener.matches(":disabled")
  const target = isPresent ? opener : document.querySelector<HTMLElement>("main")
  target?.focus()
}

export const Dialog = ({ children, isWide = false, onClose, onSubmit, title }: Props) => {
  const element = useRef<HTMLDialogElement>(null)
  const heading = useId()
  useEffect(() => {
    const opener = document.activeElement
    const dialog = element.current
    dialog?.showModal()
    dialog?.querySelector<HTMLElement>("[data-first]")?.focus()
    return () => returnFocus(dialog, opener)
  }, [])
  return (
    <dialog ref={element} class={isWide ? "dialog wide" : "dialog"} aria-labelledby={heading} onClose={onClose}>
      <header>
        <h2 id={heading}>{title}</h2>
        <IconButton icon="close" label="Close" onClick={() => element.current?.close()} />
      </header>
      {onSubmit === undefined ? (
        <div class="dialog-body">{children}</div>
      ) : (
        <Form class="dialog-body" onSubmit={onSubmit}>
          {children}
        </Form>
      )}
    </dialog>
  )
}

interface ConfirmProps {
  readonly title: string
  readonly action: string
  readonly onConfirm: () => void
  readonly onClose: () => void
  readonly children: ComponentChildren
}

export const Confirm = ({ action, children, onClose, onConfirm, title }: ConfirmProps) => (
  <Dialog title={title} onClose={onClose}>
    <p>{children}</p>
    <div class="actions">
      <Button text={action} look="danger" onClick={onConfirm} />
      <Button text="Cancel" isFirst onClick={onClose} />
    </div>
  </Dialog>
)
