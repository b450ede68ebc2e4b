/** A panel that says of when its figures are, if its source does not answer any longer. */
import type { ComponentChildren } from "preact"
import { isReachable } from "../Service/Health.ts"
import type { Answered } from "../Service/Source.ts"
import { timeOrDate } from "../Widgets/Text.ts"

interface Props {
  readonly of: Answered<unknown> | undefined
  /** Whether what is shown is old, although the source answers. */
  readonly isOld?: boolean
  readonly class?: string
  readonly label?: string
  readonly children: ComponentChildren
}

export const Dated = ({ children, class: name = "panel", isOld = false, label, of }: Props) => {
  const isStale = of !== undefined && (isOld || of.isOld || isReachable.value === false)
  return (
    <section class={name} aria-label={label} data-stale={isStale}>
      {isStale && <p class="as-of">{isOld && !of.isOld ? "no longer recorded" : `as of ${timeOrDate(of.at)}`}</p>}
      {children}
    </section>
  )
}
