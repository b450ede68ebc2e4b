import { signOut } from "../Service/Kept.ts"
import { Icon } from "./Icon.tsx"

export const SignOutButton = () => (
  <button type="button" class="button quiet icon-only" aria-label="Sign out" title="Sign out" onClick={() => signOut()}>
    <Icon name="out" />
  </button>
)
