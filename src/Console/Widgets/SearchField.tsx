/** A field that filters a list. */
import { Icon } from "./Icon.tsx"

interface Props {
  readonly label: string
  readonly placeholder: string
  readonly value: string
  readonly onInput: (text: string) => void
}

export const SearchField = ({ label, onInput, placeholder, value }: Props) => (
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
