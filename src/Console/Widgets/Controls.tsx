/** Icons, buttons, forms, and messages. */
import type { ComponentChildren, Ref } from "preact"

const paths = {
  overview: "M2 13h12M3.5 10.5v-3M6.5 10.5v-6M9.5 10.5v-4M12.5 10.5v-8",
  store:
    "M2.5 4c0-1.1 2.5-2 5.5-2s5.5.9 5.5 2-2.5 2-5.5 2-5.5-.9-5.5-2Zm0 0v8c0 1.1 2.5 2 5.5 2s5.5-.9 5.5-2V4M2.5 8c0 1.1 2.5 2 5.5 2s5.5-.9 5.5-2",
  feed: "M2 8h2.5l2-5 3 10 2-5H14",
  sessions: "M2.5 3h11v8h-6l-3 2.5V11h-2Z",
  docs: "M3.5 2h6l3 3v9h-9ZM9.5 2v3h3M5.5 8h5M5.5 10.5h5",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10ZM10.6 10.6 14 14",
  plus: "M8 3v10M3 8h10",
  pause: "M5.5 3v10M10.5 3v10",
  play: "M5 3l8 5-8 5Z",
  out: "M6 2.5H3v11h3M10 5l3 3-3 3M13 8H6",
  sun: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6ZM8 1.5v1M8 13.5v1M1.5 8h1M13.5 8h1M3.4 3.4l.7.7M11.9 11.9l.7.7M12.6 3.4l-.7.7M4.1 11.9l-.7.7",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5Z",
  system: "M2 3h12v8H2ZM6 13.5h4",
  down: "M8 2v8M4.5 7 8 10.5 11.5 7M2.5 13.5h11",
  up: "M8 10.5v-8M4.5 6 8 2.5 11.5 6M2.5 13.5h11",
  transfer: "M5 13V3M2.5 5.5 5 3l2.5 2.5M11 3v10M8.5 10.5 11 13l2.5-2.5",
  trash: "M2.5 4h11M6 4V2.5h4V4M4 4l.5 9.5h7L12 4M6.5 6.5v4.5M9.5 6.5v4.5",
  back: "M10 3 5 8l5 5",
  close: "M3.5 3.5l9 9M12.5 3.5l-9 9",
  right: "M6 3l5 5-5 5",
  file: "M4 2h5.5L12 4.5V14H4ZM9.5 2v2.5H12",
  tool: "M10.5 2.5a3.5 3.5 0 0 0-3.2 4.9L2.5 12.2l1.3 1.3 4.8-4.8a3.5 3.5 0 0 0 4.6-4.3L11 6.5 9.5 5l2.1-2.2a3.5 3.5 0 0 0-1.1-.3Z",
  thought: "M8 2a4 4 0 0 0-2.2 7.3V11h4.4V9.3A4 4 0 0 0 8 2ZM6.3 13.5h3.4",
  check: "M3 8.5 6.5 12 13 4.5",
  warning: "M8 2.5 14.5 13.5h-13ZM8 6.5v3M8 11.6v.2",
  stop: "M4 4h8v8H4Z"
} as const

export type IconName = keyof typeof paths

export const Icon = ({ name }: { readonly name: IconName }) => (
  <svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
    <path d={paths[name]} />
  </svg>
)

export const Mark = ({ size }: { readonly size: number }) => (
  <svg class="mark" viewBox="0 0 32 32" width={size} height={size} aria-hidden="true">
    <path d="M4 12h24M7 12v10M25 12v10M7 22a4.5 4.5 0 0 1 9 0a4.5 4.5 0 0 1 9 0" />
  </svg>
)

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

type FormProps = { readonly class: string; readonly onSubmit: () => void; readonly children: ComponentChildren }

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

export const Banner = ({ text, tone }: { readonly text: string; readonly tone: "bad" | "warn" | "info" }) =>
  text === "" ? null : (
    <p class={`banner ${tone}`} role={tone === "info" ? "status" : "alert"}>
      {text}
    </p>
  )

export const FailureNote = ({ text }: { readonly text: string }) =>
  text === "" ? null : (
    <p class="note bad" role="alert">
      {text}
    </p>
  )
