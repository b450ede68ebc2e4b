/** Buttons with a text, buttons that show only an icon, and forms. */
import type { ComponentChildren, Ref } from "preact"
import { Icon, type IconName } from "./Icon.tsx"

interface ButtonProps {
  readonly text: string
  /** The classes of its look, such as `small primary`. */
  readonly look?: string
  readonly icon?: IconName
  readonly title?: string
  readonly isDisabled?: boolean
  readonly isPressed?: boolean
  /** Whether it is focused when its dialog opens. */
  readonly isFirst?: boolean
  /** Without it the button submits its form. */
  readonly onClick?: () => void
}

export const Button = (props: ButtonProps) => (
  <button
    type={props.onClick === undefined ? "submit" : "button"}
    class={`button ${props.look ?? ""}`}
    title={props.title}
    aria-pressed={props.isPressed}
    data-first={props.isFirst}
    disabled={props.isDisabled}
    onClick={props.onClick}
  >
    {props.icon && <Icon name={props.icon} />}
    {props.text}
  </button>
)

interface IconButtonProps {
  readonly icon: IconName
  readonly label: string
  readonly onClick: () => void
  readonly tone?: "danger"
  readonly isDisabled?: boolean
  readonly buttonRef?: Ref<HTMLButtonElement>
}

export const IconButton = ({ buttonRef, icon, isDisabled = false, label, onClick, tone }: IconButtonProps) => (
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

interface FormProps {
  readonly class: string
  readonly onSubmit: () => void
  readonly children: ComponentChildren
}

export const Form = ({ children, class: name, onSubmit }: FormProps) => (
  <form
    class={name}
    onSubmit={event => {
      event.preventDefault()
      onSubmit()
    }}
  >
    {children}
  </form>
)
