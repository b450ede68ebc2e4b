/** A button that shows an icon. Its label is read aloud, and shown where the pointer rests on it. */
import type { Ref } from "preact"
import { Icon, type IconName } from "./Icon.tsx"

interface Props {
  readonly icon: IconName
  readonly label: string
  readonly onClick: () => void
  readonly tone?: "danger"
  readonly isDisabled?: boolean
  readonly buttonRef?: Ref<HTMLButtonElement>
}

export const IconButton = ({ buttonRef, icon, isDisabled = false, label, onClick, tone }: Props) => (
  <button
    {...(buttonRef !== undefined && { ref: buttonRef })}
    type="button"
    class={tone === undefined ? "button quiet icon-only" : `button quiet ${tone} icon-only`}
    aria-label={label}
    title={label}
    disabled={isDisabled}
    onClick={onClick}
  >
    <Icon name={icon} />
  </button>
)
