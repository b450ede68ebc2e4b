/** Asks for a key or a token. */
import { isDevMode } from "../Overview/Metrics.ts"
import { isChecking, refusal, signIn } from "../Service/Connection.ts"
import { SignInCard } from "../Widgets/SignInCard.tsx"

export const SignIn = () => (
  <SignInCard
    title="Causeway"
    label="Key or token"
    action="Sign in"
    isBusy={isChecking.value}
    problem={refusal.value}
    hint={
      isDevMode.value
        ? "Dev mode: the key is dev-key, and dev-agent-key only reads, unless others were set."
        : "It is kept for this tab alone."
    }
    onGiven={secret => void signIn(secret)}
  />
)
