/** Signing in: the first page, and forms for a secret. */
import type { ComponentChildren } from "preact"
import { useEffect, useId, useRef, useState } from "preact/hooks"
import { Button, Form } from "./Button.tsx"
import { Mark } from "./Icon.tsx"

interface SecretFormProps {
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
    <Form
      class="secret-form"
      onSubmit={() => {
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
      <Button text={isBusy ? "Checking…" : action} look="primary" isDisabled={isBusy || secret.trim() === ""} />
    </Form>
  )
}

interface CardProps extends SecretFormProps {
  readonly title: string
  readonly children?: ComponentChildren
}

export const SignInCard = ({ children, title, ...form }: CardProps) => (
  <main class="sign-in">
    <section class="sign-in-card" aria-labelledby="sign-in-title">
      <Mark size={36} />
      <h1 id="sign-in-title">{title}</h1>
      <p class="muted">{location.host}</p>
      <SecretForm isFirst {...form} />
      {children}
    </section>
  </main>
)
