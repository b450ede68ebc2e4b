/** The API reference: starts the page. It asks for a key first, because the documents require one. */
import { useSignalEffect } from "@preact/signals"
import { render } from "preact"
import { lazy, Suspense } from "preact/compat"
import { routes } from "../Service/Routes.ts"
import { signOut } from "../Service/TabStorage.ts"
import { Button, IconButton } from "../Widgets/Button.tsx"
import { Icon, Mark } from "../Widgets/Icon.tsx"
import { FailureNote } from "../Widgets/Messages.tsx"
import { SignInCard } from "../Widgets/SignIn.tsx"
import { applyTheme, isDark, ThemeButton } from "../Widgets/Theme.tsx"
import { describe, described, isBusy, problem, resume, save } from "./Descriptions.ts"

/** Swagger UI is loaded after the sign-in, because it is a hundred times as large as the rest of the page. */
const Operations = lazy(() => import("./Operations.tsx"))

const ConsoleLink = () =>
  routes.console === undefined ? null : (
    <a class="button quiet" href={routes.console}>
      <Icon name="overview" /> Console
    </a>
  )

const SignIn = () => (
  <SignInCard
    title="API reference"
    label="Key"
    action="Open"
    isBusy={isBusy.value}
    problem={problem.value}
    hint="Used to try out requests. Stored for this tab only."
    onGiven={key => void describe(key)}
  >
    <ConsoleLink />
  </SignInCard>
)

const SaveButton = ({ address, name, title }: { readonly [Name in "address" | "name" | "title"]: string }) => (
  <Button text={title} look="small" icon="down" title={address} onClick={() => void save(address, name)} />
)

const Frame = () => {
  const { document, key } = described.value!
  return (
    <>
      <header class="reference-head">
        <Mark size={22} />
        <h1>API reference</h1>
        <nav aria-label="Pages">
          <ConsoleLink />
        </nav>
        <ThemeButton />
        <IconButton icon="out" label="Sign out" onClick={signOut} />
      </header>
      <main class="reference">
        <section class="reference-documents" aria-label="Documents">
          <p class="muted">
            {routes.asyncApi === undefined ? (
              "This page shows the OpenAPI document."
            ) : (
              <>
                This page shows the OpenAPI document. The AsyncAPI document, at <code>{routes.asyncApi}</code>,
                describes the WebSockets.
              </>
            )}
          </p>
          <SaveButton address={routes.openApi ?? ""} name="openapi.json" title="OpenAPI" />
          {routes.asyncApi !== undefined && (
            <SaveButton address={routes.asyncApi} name="asyncapi.json" title="AsyncAPI" />
          )}
          <FailureNote text={problem.value} />
        </section>
        <Suspense fallback={<p class="muted pad">Loading…</p>}>
          <Operations document={document} credential={key} />
        </Suspense>
      </main>
    </>
  )
}

const Page = () => {
  useSignalEffect(() => {
    document.documentElement.classList.toggle("dark-mode", isDark.value)
  })
  return described.value === undefined ? <SignIn /> : <Frame />
}

applyTheme()
resume()
render(<Page />, document.getElementById("reference")!)
