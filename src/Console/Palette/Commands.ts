/** The commands of the palette: where to go, what to copy, and the theme. */
import { listPage, namespacePage } from "../../Client/Reads.ts"
import { requests, user } from "../Service/Connection.ts"
import { type Copy, ofEntry, ofNamespace, ofSession } from "../Service/Copies.ts"
import { afterGuards, go, route } from "../Service/Navigation.ts"
import { signOut } from "../Service/Page.ts"
import { listed } from "../Sessions/SessionList.ts"
import { remembered } from "../Store/Namespaces/Namespaces.ts"
import { place } from "../Widgets/CopyMenu.tsx"
import { chooseTheme, themes } from "../Widgets/Shell.tsx"
import { visible } from "../Widgets/Text.ts"

export interface Command {
  readonly kind: string
  readonly title: string
  /** Runs after the palette has closed. */
  readonly run: () => void
}

/** The commands of each kind that are shown. */
const most = 8

const contains = (text: string, wanted: string): boolean => text.toLowerCase().includes(wanted.toLowerCase())

const copyOf = ({ name, text }: Copy): Command => ({
  kind: "Copy",
  title: `Copy ${name === "curl" ? "curl" : name.toLowerCase()}`,
  run: () => void navigator.clipboard.writeText(text)
})

/** What can be copied of what is open. */
const copies = (): ReadonlyArray<Copy> => {
  const [view, first, second] = route.value
  if (view === "store" && first !== undefined) {
    return second === undefined ? ofNamespace(place(), first) : ofEntry(place(), first, second)
  }
  if (view === "sessions" && first !== undefined) return ofSession(place(), first)
  return [{ name: "Link", text: location.href }]
}

const goTo = (kind: string, title: string, ...path: ReadonlyArray<string>): Command => ({
  kind,
  title,
  run: () => go(...path)
})

/** The commands that are known at once. */
export const commandsOf = (
  text: string,
  pages: ReadonlyArray<{ name: string; title: string }>
): ReadonlyArray<Command> => {
  const wanted = text.trim()
  const fixed = [
    ...pages.map(({ name, title }) => goTo("Page", title, name)),
    ...copies().map(copyOf),
    ...themes.map(theme => ({ kind: "Colors", title: `Colors: ${theme}`, run: () => chooseTheme(theme) })),
    { kind: "Session", title: "Sign out", run: () => afterGuards(signOut) }
  ].filter(({ title }) => contains(title, wanted))
  if (wanted === "") return fixed
  const namespaces = user.value?.store === "none" ? [] : remembered.value.filter(name => contains(name, wanted))
  const sessions = listed.value.filter(({ id, title }) => contains(title, wanted) || id.startsWith(wanted))
  return [
    ...namespaces.slice(0, most).map(name => goTo("Namespace", visible(name), "store", name)),
    ...sessions.slice(0, most).map(({ id, title }) => goTo("Session", visible(title) || id, "sessions", id)),
    ...fixed
  ]
}

type NamespacePage = Awaited<ReturnType<typeof namespacePage>>

/** The first namespaces, which are read once for each time that the palette is opened. */
let first: Promise<NamespacePage> | undefined

export const forget = (): void => {
  first = undefined
}

const firstPage = (): Promise<NamespacePage> => {
  first ??= namespacePage(requests.value, {}, undefined)
  first.catch(forget)
  return first
}

const namespacesOf = async (wanted: string, signal: AbortSignal): Promise<ReadonlyArray<string>> => {
  const { cursor, namespaces } = await firstPage()
  const found = namespaces.filter(({ namespace }) => contains(namespace, wanted))
  // Of more namespaces than these, the service finds those that start with the text.
  const others =
    cursor === undefined
      ? []
      : (await namespacePage(requests.value, { prefix: wanted, limit: most, signal }, undefined)).namespaces
  const known = new Set(remembered.peek())
  return [...new Set([...found, ...others].map(({ namespace }) => namespace))]
    .filter(namespace => !known.has(namespace))
    .slice(0, most)
}

/** Namespaces that contain a text, and keys of the open one that start with it. */
export const find = async (text: string, signal: AbortSignal): Promise<ReadonlyArray<Command>> => {
  const wanted = text.trim()
  if (wanted === "" || user.value?.store === "none") return []
  const [view, namespace] = route.value
  const isOpen = view === "store" && namespace !== undefined
  const [names, keys] = await Promise.all([
    namespacesOf(wanted, signal),
    isOpen ? listPage(requests.value, namespace, { prefix: wanted, limit: most, signal }, undefined, true) : undefined
  ])
  return [
    ...names.map(name => goTo("Namespace", visible(name), "store", name)),
    ...(keys?.items ?? []).map(({ key }) => goTo("Key", visible(key), "store", namespace ?? "", key))
  ]
}
