/** The theme: light, dark, or that of the system. */
import { signal } from "@preact/signals"

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
export const chooseTheme = (chosen: Theme): void => {
  theme.value = chosen
  if (chosen === "system") localStorage.removeItem(storageName)
  else localStorage.setItem(storageName, chosen)
  applyTheme()
}
