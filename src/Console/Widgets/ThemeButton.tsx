/** Switches between the light, the dark and the system's theme. */
import { Icon, type IconName } from "./Icon.tsx"
import { chooseTheme, type Theme, theme } from "./Theme.ts"

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
