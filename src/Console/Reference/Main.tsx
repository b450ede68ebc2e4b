/** The API reference: starts the page. It asks for a key first, because the documents require one. */
import { signal, useSignalEffect } from "@preact/signals"
import { render } from "preact"
import { lazy, Suspense } from "preact/compat"
import { download, names, routes, signOut } from "../Service/Page.ts"
import { Button, FailureNote, Icon, IconButton, Mark } from "../Widgets/Controls.tsx"
import { applyTheme, isDark, SignInCard, ThemeButton } from "../Widgets/Shell.tsx"
import type { OpenApiDocument } from "./Operations.tsx"

type Described = { readonly document: OpenApiDocument; readonly key: string }

const described = signal<Described | undefined>(undefined)
const problem = signal("")
const isBusy = signal(false)

class Refused extends Error {}

const read = async (address: string, key: string): Promise<Response> => {
  const response = await fetch(address, { headers: { authorization: `Bearer ${key}` } }).catch(() => {
    throw new Refused("The service does not answer.")
  })
  if (response.ok) return response
  if (response.status === 401) throw new Refused("Invalid key.")
  const { error = `The service answered ${response.status}.` } = await response.json().catch(() => ({}))
  throw new Refused(error)
}

const attempt = async (work: () => Promise<void>): Promise<void> => {
  isBusy.value = true
  problem.value = ""
  try {
    await work()
  } catch (error) {
    problem.value = error instanceof Refused ? error.message : "The answer of the service is invalid."
  } finally {
    isBusy.value = false
  }
}

/** Reads the OpenAPI document with a key. A valid key is stored for the tab. */
const describe = (key: string): Promise<void> =>
  attempt(async () => {
    if (routes.openApi === undefined) throw new Refused("This application has no OpenAPI document.")
    const document: OpenApiDocument = await (await read(routes.openApi, key)).json()
    sessionStorage.setItem(names.credential, key)
    described.value = { document, key }
  })

const save = (address: string, name: string): Promise<void> =>
  attempt(async () => {
    const response = await read(address, described.peek()?.key ?? "")
    download(await response.blob(), name)
  })

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
            This page shows the OpenAPI document.
            {routes.asyncApi !== undefined && (
              <>
                {" "}
                The AsyncAPI document, at <code>{routes.asyncApi}</code>, describes the WebSockets.
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
const stored = sessionStorage.getItem(names.credential)
if (stored !== null) void describe(stored)
render(<Page />, document.getElementById("reference")!)
