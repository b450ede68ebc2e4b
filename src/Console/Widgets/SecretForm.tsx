/** A form for a key or a token. */
import { useEffect, useId, useRef, useState } from "preact/hooks"

export interface SecretFormProps {
  readonly label: string
  readonly action: string
  readonly onGiven: (secret: string) => void
  readonly isBusy?: boolean
  readonly problem?: string
  readonly hint?: string | undefined
  /** Whether the field is focused at first. */
  readonly isFirst?: boolean
}

export const SecretForm = ({
  action,
  hint,
  isBusy = false,
  isFirst = false,
  label,
  onGiven,
  problem = ""
}: SecretFormProps) => {
  const [secret, setSecret] = useState("")
  const field = useId()
  const input = useRef<HTMLInputElement>(null)
  useEffect(() => {
    if (isFirst) input.current?.focus()
  }, [])
  return (
    <form
      class="secret-form"
      onSubmit={event => {
        event.preventDefault()
        if (secret.trim() !== "") onGiven(secret.trim())
      }}
    >
      <label for={field}>{label}</label>
      <input
        ref={input}
        id={field}
        type="password"
        autocomplete="off"
        spellcheck={false}
        value={secret}
        aria-invalid={problem !== ""}
        aria-describedby={`${field}-note`}
        onInput={event => setSecret(event.currentTarget.value)}
      />
      <p id={`${field}-note`} class={problem === "" ? "note" : "note bad"} role={problem === "" ? undefined : "alert"}>
        {problem === "" ? hint : problem}
      </p>
      <button type="submit" class="button primary" disabled={isBusy || secret.trim() === ""}>
        {isBusy ? "Checking…" : action}
      </button>
    </form>
  )
}
