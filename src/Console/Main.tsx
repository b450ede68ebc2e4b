/** The console: starts the page, which has the navigation, the user, and the view. */
import { type FunctionComponent, render } from "preact"
import { useEffect } from "preact/hooks"
import { Feed } from "./Feed/Feed.tsx"
import { watchActivity } from "./Overview/Activity.ts"
import { Overview } from "./Overview/Overview.tsx"
import { openPalette, Palettes } from "./Palette/Palette.tsx"
import {
  hasSessionToken,
  isChecking,
  openSessions,
  refusal,
  resume,
  sessions,
  signIn,
  user
} from "./Service/Connection.ts"
import { health, isReachable, isStoreReady, watchHealth } from "./Service/Health.ts"
import { afterGuards, href, view } from "./Service/Navigation.ts"
import { routes, signOut } from "./Service/Page.ts"
import { maxWaiting, waitingCount, watchWaiting } from "./Sessions/SessionList.ts"
import { SessionsView } from "./Sessions/SessionsView.tsx"
import { StoreView } from "./Store/StoreView.tsx"
import { Icon, IconButton, type IconName, Mark } from "./Widgets/Controls.tsx"
import { cutMiddle } from "./Widgets/Names.tsx"
import { applyTheme, SignInCard, ThemeButton } from "./Widgets/Shell.tsx"
import { atLeast, visible } from "./Widgets/Text.ts"

const SignIn = () => (
  <SignInCard
    title="Causeway"
    label="Key or token"
    action="Sign in"
    isBusy={isChecking.value}
    problem={refusal.value}
    hint={
      routes.metricsJson !== undefined
        ? "Dev mode: use dev-key, or dev-agent-key to only read, unless other keys are set."
        : "Stored for this tab only."
    }
    onGiven={secret => void signIn(secret)}
  />
)

interface View {
  readonly name: string
  readonly title: string
  readonly icon: IconName
  readonly component: FunctionComponent
}

const allViews: ReadonlyArray<View> = [
  { name: "overview", title: "Overview", icon: "overview", component: Overview },
  { name: "store", title: "Store", icon: "store", component: StoreView },
  { name: "feed", title: "Feed", icon: "feed", component: Feed },
  { name: "sessions", title: "Sessions", icon: "sessions", component: SessionsView }
]

const isOffered = ({ name }: View): boolean =>
  name === "sessions" ? routes.gateway !== undefined : name === "overview" || user.value?.store !== "none"

const accessNames = { write: "reads and writes", read: "reads only", none: "sessions only" } as const

const statusTone = (): string => {
  if (isReachable.value === false || isStoreReady.value === false) return "bad"
  const status = health.value?.value.status
  return status === undefined ? "idle" : status === "ok" ? "good" : status === "degraded" ? "warn" : "bad"
}

/** The number of sessions that wait for a person. */
const Waiting = () => {
  const { value = 0 } = waitingCount
  if (value === 0) return null
  const shown = atLeast(value, value < maxWaiting)
  return (
    <span class="badge warn nav-count" title={`${shown} waiting for you`}>
      {shown}
      <span class="visually-hidden"> waiting for you</span>
    </span>
  )
}

/** Whether the credential is likely to open sessions: a token does, and in dev mode every key. */
const opensSessions = (): boolean =>
  routes.gateway !== undefined &&
  (user.value?.store === "none" || hasSessionToken.value || routes.metricsJson !== undefined)

const Navigation = ({ all, present }: { readonly all: ReadonlyArray<View>; readonly present: string }) => {
  const signedIn = user.value
  return (
    <nav class="sidebar" aria-label="Console">
      <a class="brand" href={href("overview")} aria-label="Causeway, overview">
        <Mark size={22} />
        <span>Causeway</span>
      </a>
      <ul>
        {all.map(({ icon, name, title }) => (
          <li key={name}>
            <a href={href(name)} aria-current={name === present ? "page" : undefined}>
              <Icon name={icon} />
              <span>{title}</span>
              {name === "overview" && <i class={`dot ${statusTone()}`} />}
              {name === "sessions" && <Waiting />}
            </a>
          </li>
        ))}
      </ul>
      <div class="sidebar-foot">
        <p class="access">
          This key <b>{accessNames[signedIn?.store ?? "none"]}</b>
        </p>
        {routes.reference !== undefined && (
          <a class="button quiet icon-only" href={routes.reference} aria-label="API reference" title="API reference">
            <Icon name="docs" />
          </a>
        )}
        <IconButton icon="search" label="Go to, copy, or change (Ctrl K)" onClick={openPalette} />
        <ThemeButton />
        <IconButton icon="out" label="Sign out" onClick={() => afterGuards(signOut)} />
      </div>
    </nav>
  )
}

/** A page that the console does not have, or not for this credential. */
const missing = { name: "", title: "No such page", component: () => <NoSuchPage /> }

const NoSuchPage = () => (
  <div class="scroll-view">
    <section class="panel pad">
      <h2>There is no such page</h2>
      <p>
        The address names <code>{visible(cutMiddle(view.value, 80))}</code>, which the console does not have.{" "}
        <a href={href("overview")}>Overview</a>
      </p>
    </section>
  </div>
)

const Frame = () => {
  const all = allViews.filter(isOffered)
  const shown = all.find(({ name }) => name === view.value) ?? missing
  useEffect(() => {
    document.title = `${shown.title} · Causeway`
  }, [shown.title])
  useEffect(() => {
    const ended = new AbortController()
    void watchActivity(ended.signal)
    void watchWaiting(ended.signal)
    if (opensSessions() && sessions.peek() === undefined) void openSessions()
    return () => ended.abort()
  }, [user.value])
  const { component: Shown } = shown
  return (
    <div class="frame">
      <button type="button" class="skip" onClick={() => document.querySelector<HTMLElement>("main")?.focus()}>
        Skip to content
      </button>
      <Navigation all={all} present={shown.name} />
      <main id="main" tabIndex={-1}>
        {isReachable.value === false && shown.name !== "overview" && (
          <p class="banner bad" role="status">
            <Icon name="warning" /> The service does not answer. Trying again…
          </p>
        )}
        <Shown key={shown.name} />
        <Palettes pages={all} />
      </main>
    </div>
  )
}

const App = () => {
  useEffect(() => {
    const ended = new AbortController()
    void watchHealth(ended.signal)
    return () => ended.abort()
  }, [])
  return user.value === undefined ? <SignIn /> : <Frame />
}

applyTheme()
void resume()
render(<App />, document.getElementById("console")!)
