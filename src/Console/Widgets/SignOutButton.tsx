import { signOut } from "../Service/TabStorage.ts"
import { IconButton } from "./IconButton.tsx"

export const SignOutButton = () => <IconButton icon="out" label="Sign out" onClick={signOut} />
