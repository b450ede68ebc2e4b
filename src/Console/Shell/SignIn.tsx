/** The first page: asks for a key or a token. */
import { isDevMode } from "../Overview/Metrics.ts"
import { isChecking, refusal, signIn } from "../Service/Connection.ts"
import { Mark } from "../Widgets/Icon.tsx"
import { SecretForm } from "../Widgets/SecretForm.tsx"

export const SignIn = () => (
  <main class="sign-in">
    <section class="sign-in-card" aria-labelledby="sign-in-title">
      <Mark size={36} />
      <h1 id="sign-in-title">Causeway</h1>
      <p class="muted">{location.host}</p>
      <SecretForm
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
    </section>
  </main>
)
