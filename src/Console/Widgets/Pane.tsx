/** The parts of a pane: its head, a field that filters its list, and the foot of the list. */
import type { ComponentChildren } from "preact"
import { Icon } from "./Icon.tsx"
import { visible } from "./Text.ts"

interface HeadProps {
  readonly title: string
  /** The tooltip of the title; the title itself without it. */
  readonly hint?: string
  /** Whether the title is shown in a monospaced font. */
  readonly isName?: boolean
  /** The link back, for narrow windows, which show one pane. */
  readonly back: { readonly href: string; readonly label: string }
  readonly children?: ComponentChildren
}

/** The title of a pane, and its actions. */
export const PaneHead = ({ back, children, hint, isName = false, title }: HeadProps) => (
  <div class="pane-head">
    <a class="button quiet icon-only only-narrow" href={back.href} aria-label={back.label}>
      <Icon name="back" />
    </a>
    <h2 class={isName ? "pane-title mono" : "pane-title"} title={hint ?? visible(title)} dir="auto">
      {visible(title)}
    </h2>
    {children}
  </div>
)

/** The summary of a list, and whether it is updated live. */
export const ListFoot = ({ children, isLive }: { readonly isLive: boolean; readonly children: ComponentChildren }) => (
  <p class="pane-foot" role="status">
    <span>{children}</span>
    <span class={isLive ? "live" : "live off"}>{isLive ? "live" : "connecting"}</span>
  </p>
)

interface SearchProps {
  readonly label: string
  readonly placeholder: string
  readonly value: string
  readonly onInput: (text: string) => void
}

export const SearchField = ({ label, onInput, placeholder, value }: SearchProps) => (
  <div class="search">
    <Icon name="search" />
    <input
      type="search"
      aria-label={label}
      placeholder={placeholder}
      value={value}
      onInput={event => onInput(event.currentTarget.value)}
    />
  </div>
)
