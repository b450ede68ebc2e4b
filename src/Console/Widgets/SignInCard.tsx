/** The first page: asks for a credential. */
import type { ComponentChildren } from "preact"
import { Mark } from "./Icon.tsx"
import { SecretForm, type SecretFormProps } from "./SecretForm.tsx"

interface Props extends SecretFormProps {
  readonly title: string
  readonly children?: ComponentChildren
}

export const SignInCard = ({ children, title, ...form }: Props) => (
  <main class="sign-in">
    <section class="sign-in-card" aria-labelledby="sign-in-title">
      <Mark size={36} />
      <h1 id="sign-in-title">{title}</h1>
      <p class="muted">{location.host}</p>
      <SecretForm isFirst {...form} />
      {children}
    </section>
  </main>
)
