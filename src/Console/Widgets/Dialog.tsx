/**
 * A modal dialog of the browser's own: it keeps the focus, and Escape closes it. What has the attribute `data-first`
 * has the focus at first.
 */
import type { ComponentChildren } from "preact"
import { useEffect, useId, useRef } from "preact/hooks"
import { Icon } from "./Icon.tsx"

interface Props {
  readonly title: string
  readonly onClose: () => void
  readonly children: ComponentChildren
  readonly isWide?: boolean
}

/** Gives the focus back to where it was, or to the view where that is gone. */
const giveBack = (opener: Element | null): void => {
  const isThere = opener instanceof HTMLElement && opener.isConnected && !opener.matches(":disabled")
  const target = isThere ? opener : document.querySelector<HTMLElement>("main")
  target?.focus()
}

export const Dialog = ({ children, isWide = false, onClose, title }: Props) => {
  const element = useRef<HTMLDialogElement>(null)
  const heading = useId()
  useEffect(() => {
    const opener = document.activeElement
    element.current?.showModal()
    element.current?.querySelector<HTMLElement>("[data-first]")?.focus()
    return () => giveBack(opener)
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
