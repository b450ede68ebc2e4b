/** The first page: asks for a key or a token. */
import { isDevMode } from "../Overview/Metrics.ts"
import { isChecking, refusal, signIn } from "../Service/Connection.ts"
import { SecretForm } from "../Widgets/SecretForm.tsx"

export const SignIn = () => (
  <main class="sign-in">
    <section class="sign-in-card" aria-labelledby="sign-in-title">
      <svg class="mark" viewBox="0 0 32 32" width="36" height="36" aria-hidden="true">
        <path d="M4 12h24M7 12v10M25 12v10M7 22a4.5 4.5 0 0 1 9 0a4.5 4.5 0 0 1 9 0" />
      </svg>
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
