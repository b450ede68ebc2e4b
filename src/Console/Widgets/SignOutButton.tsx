import { signOut } from "../Service/TabStorage.ts"
import { IconButton } from "./IconButton.tsx"

interface Props {
  /** Calls `leave` if the user may leave the page. */
  readonly ask: (leave: () => void) => void
}

export const SignOutButton = ({ ask }: Props) => <IconButton icon="out" label="Sign out" onClick={() => ask(signOut)} />
