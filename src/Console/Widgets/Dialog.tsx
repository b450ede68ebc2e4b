/** A modal dialog of the browser's own: it keeps the focus, and Escape closes it. */
import type { ComponentChildren } from "preact"
import { useEffect, useId, useRef } from "preact/hooks"
import { Icon } from "./Icon.tsx"

interface Props {
  readonly title: string
  readonly onClose: () => void
  readonly children: ComponentChildren
  readonly isWide?: boolean
}

export const Dialog = ({ children, isWide = false, onClose, title }: Props) => {
  const element = useRef<HTMLDialogElement>(null)
  const heading = useId()
  useEffect(() => {
    element.current?.showModal()
  }, [])
  return (
    <dialog ref={element} class={isWide ? "dialog wide" : "dialog"} aria-labelledby={heading} onClose={onClose}>
      <header>
        <h2 id={heading}>{title}</h2>
        <button
          type="button"
          class="button quiet icon-only"
          aria-label="Close"
          onClick={() => element.current?.close()}
        >
          <Icon name="close" />
        </button>
      </header>
      {children}
    </dialog>
  )
}
