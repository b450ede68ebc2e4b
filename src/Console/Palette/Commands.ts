/** The commands of the palette: where to go, what to copy, and the theme. */
import { RequestRefused, type Session } from "../../Client/Client.ts"
import { listPage, namespacePage } from "../../Client/Reads.ts"
import { requests, sessions, user } from "../Service/Connection.ts"
import { type Copy, ofEntry, ofNamespace, ofSession } from "../Service/Copies.ts"
import { afterGuards, go, route } from "../Service/Navigation.ts"
import { signOut } from "../Service/Page.ts"
import { maxSessions, readSessions } from "../Sessions/SessionList.ts"
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
  return [...namespaces.slice(0, most).map(name => goTo("Namespace", visible(name), "store", name)), ...fixed]
}

type NamespacePage = Awaited<ReturnType<typeof namespacePage>>

/** What is read once for each time that the palette is opened. */
let first: Promise<NamespacePage> | undefined
let known: Promise<ReadonlyMap<string, Session>> | undefined

export const forget = (): void => {
  first = undefined
  known = undefined
}

const firstPage = (): Promise<NamespacePage> => {
  first ??= namespacePage(requests.value, {}, undefined)
  first.catch(forget)
  return first
}

/** Whether a text has the form of an id of a session. */
const isId = (text: string): boolean => /^[0-9a-f]{36}$/.test(text)

/** Sessions by their title or a part of their id: the last active ones, and any one by its whole id. */
const sessionsOf = async (wanted: string, signal: AbortSignal): Promise<ReadonlyArray<Session>> => {
  const { value: opened } = sessions
  if (opened === undefined) return []
  known ??= readSessions(opened, "all", maxSessions)
  known.catch(forget)
  const found = [...(await known).values()].filter(({ id, title }) => contains(title, wanted) || contains(id, wanted))
  if (found.length > 0 || !isId(wanted)) return found.slice(0, most)
  try {
    return [await opened.get(wanted, { signal })]
  } catch (error) {
    if (error instanceof RequestRefused && error.code === "not_found") return []
    throw error
  }
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

/** Namespaces and sessions that contain a text, and keys of the open namespace that start with it. */
export const find = async (text: string, signal: AbortSignal): Promise<ReadonlyArray<Command>> => {
  const wanted = text.trim()
  if (wanted === "") return []
  const hasStore = user.value?.store !== "none"
  const [view, namespace] = route.value
  const isOpen = hasStore && view === "store" && namespace !== undefined
  const [names, keys, found] = await Promise.all([
    hasStore ? namespacesOf(wanted, signal) : [],
    isOpen ? listPage(requests.value, namespace, { prefix: wanted, limit: most, signal }, undefined, true) : undefined,
    sessionsOf(wanted, signal)
  ])
  return [
    ...names.map(name => goTo("Namespace", visible(name), "store", name)),
    ...(keys?.items ?? []).map(({ key }) => goTo("Key", visible(key), "store", namespace ?? "", key)),
    ...found.map(({ id, title }) => goTo("Session", visible(title) || id, "sessions", id))
  ]
}
