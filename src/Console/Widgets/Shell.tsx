/** What both pages have around their content: the colors, and the form for a key. */
import { signal } from "@preact/signals"
import type { ComponentChildren } from "preact"
import { useEffect, useId, useRef, useState } from "preact/hooks"
import { Button, Form, Icon, type IconName, Mark } from "./Controls.tsx"

export const themes = ["system", "light", "dark"] as const

export type Theme = (typeof themes)[number]

const storageName = "causeway.theme"
const stored = localStorage.getItem(storageName)
const theme = signal<Theme>(stored === "light" || stored === "dark" ? stored : "system")

const systemDark = matchMedia("(prefers-color-scheme: dark)")

/** Whether the page is dark. Plots need it, as they draw their own colors. */
export const isDark = signal(false)

const forcedColors = matchMedia("(forced-colors: active)")

/** Whether the system replaces the colors of the page, as for a high contrast. */
export const hasForcedColors = signal(forcedColors.matches)

forcedColors.addEventListener("change", () => {
  hasForcedColors.value = forcedColors.matches
})

export const applyTheme = (): void => {
  const { value } = theme
  document.documentElement.dataset.theme = value
  isDark.value = value === "dark" || (value === "system" && systemDark.matches)
}

systemDark.addEventListener("change", applyTheme)

/** Sets the theme for all tabs. */
export const chooseTheme = (chosen: Theme): void => {
  theme.value = chosen
  if (chosen === "system") localStorage.removeItem(storageName)
  else localStorage.setItem(storageName, chosen)
  applyTheme()
}

const nextTheme: Readonly<Record<Theme, Theme>> = { system: "light", light: "dark", dark: "system" }
const themeIcon: Readonly<Record<Theme, IconName>> = { system: "system", light: "sun", dark: "moon" }

export const ThemeButton = () => (
  <button
    type="button"
    class="button quiet icon-only"
    aria-label={`Colors: ${theme.value}. Change to ${nextTheme[theme.value]}`}
    title={`Colors: ${theme.value}`}
    onClick={() => chooseTheme(nextTheme[theme.value])}
  >
    <Icon name={themeIcon[theme.value]} />
  </button>
)

interface SecretFormProps {
  readonly label: string
  readonly action: string
  readonly onGiven: (secret: string) => void
  readonly isBusy?: boolean
  readonly problem?: string
  readonly hint?: string | undefined
  readonly isFirst?: boolean
}

export const SecretForm = ({ hint, isBusy = false, isFirst = false, problem = "", ...props }: SecretFormProps) => {
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
        if (secret.trim() !== "") props.onGiven(secret.trim())
      }}
    >
      <label for={field}>{props.label}</label>
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
      <Button text={isBusy ? "Checking…" : props.action} look="primary" isDisabled={isBusy || secret.trim() === ""} />
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
