/** The parts that panes have in common. */
import type { ComponentChildren } from "preact"
import { Icon } from "./Icon.tsx"
import { visible } from "./Text.ts"

interface HeadProps {
  readonly title: string
  /** What is told of the title where the pointer rests on it; the title itself without it. */
  readonly hint?: string
  /** Whether the title is a name that is written in code. */
  readonly isName?: boolean
  /** Where a narrow window, which shows one pane, goes back to. */
  readonly back: { readonly href: string; readonly label: string }
  readonly children?: ComponentChildren
}

/** The title of a pane, and what can be done with it. */
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

interface FootProps {
  readonly isLive: boolean
  readonly children: ComponentChildren
}

/** What a list has, and whether changes come in as they happen. */
export const ListFoot = ({ children, isLive }: FootProps) => (
  <p class="pane-foot" role="status">
    <span>{children}</span>
    <span class={isLive ? "live" : "live off"}>{isLive ? "live" : "connecting"}</span>
  </p>
)
