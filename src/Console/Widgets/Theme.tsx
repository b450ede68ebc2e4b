/** The theme: light, dark, or that of the system. */
import { signal } from "@preact/signals"
import { Icon, type IconName } from "./Icon.tsx"

export type Theme = "system" | "light" | "dark"

const storageName = "causeway.theme"

const stored = (): Theme => {
  const value = localStorage.getItem(storageName)
  return value === "light" || value === "dark" ? value : "system"
}

export const theme = signal<Theme>(stored())

const systemDark = matchMedia("(prefers-color-scheme: dark)")

/** Whether the page is dark. Plots need it, as they draw their own colors. */
export const isDark = signal(false)

/** Applies the theme to the page. */
export const applyTheme = (): void => {
  const { value } = theme
  document.documentElement.dataset.theme = value
  isDark.value = value === "dark" || (value === "system" && systemDark.matches)
}

systemDark.addEventListener("change", applyTheme)

/** Sets the theme, and stores it for all tabs. */
const chooseTheme = (chosen: Theme): void => {
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
