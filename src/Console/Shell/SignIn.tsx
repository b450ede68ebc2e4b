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
        ? "Dev mode: use dev-key, or dev-agent-key to only read, unless other keys are set."
        : "Stored for this tab only."
    }
    onGiven={secret => void signIn(secret)}
  />
)
