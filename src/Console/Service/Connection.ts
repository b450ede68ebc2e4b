/** The user of the console, and the clients with the user's credential. It is stored for this tab only. */
import { computed, type ReadonlySignal, signal } from "@preact/signals"
import {
  type Client,
  ConnectionFailed,
  type ConnectionStatus,
  type FollowEvent,
  type FollowOptions,
  Forbidden,
  makeClient,
  makeSessions,
  ServiceUnavailable,
  type Sessions,
  Unauthorized
} from "../../Client/Client.ts"
import { isClientError } from "../../Client/Errors.ts"
import { requestsOf } from "../../Client/KeyValue.ts"
import type { JsonFormat, Requests } from "../../Client/Requests.ts"
import { Backoff, isTransient } from "../../Client/Time.ts"
import * as JsonText from "../JsonText.ts"
import { messageOf } from "./Failure.ts"
import { checkHealth } from "./Health.ts"
import { clear, names, routes } from "./Page.ts"
import { clock, pause } from "./Pause.ts"

const decoded = (part: string): string =>
  new TextDecoder().decode(
    Uint8Array.from(atob(part.replaceAll("-", "+").replaceAll("_", "/")), character => character.charCodeAt(0))
  )

/** The tenant and the user that a token names, for display; the service verifies it. */
const claimsOf = (token: string): { readonly tenant: string; readonly sub: string } | undefined => {
  try {
    const { sub, tenant }: Partial<Record<string, unknown>> = JSON.parse(decoded(token.split(".")[1] ?? ""))
    return typeof tenant === "string" && typeof sub === "string" ? { tenant, sub } : undefined
  } catch {
    return undefined
  }
}

/** The user's access to the store; `none` if the application has no store or the credential is not for it. */
type StoreAccess = "write" | "read" | "none"

type User = { readonly credential: string; readonly store: StoreAccess }

export const user = signal<User | undefined>(undefined)
export const isChecking = signal(false)

/** Why the last attempt to sign in failed; `""` without one. */
export const refusal = signal("")

/** The token of sessions, if it differs from the credential of the store. */
const sessionToken = signal<string | undefined>(undefined)
export const canWrite = computed(() => user.value?.store === "write")

/** Whether the user may talk to agents. With a read-only credential, nothing that writes is offered. */
export const canConverse = computed(() => user.value?.store !== "read" || sessionToken.value !== undefined)

const { origin } = location

const requestsWith = (credential: string): Requests =>
  requestsOf({ baseUrl: origin, prefix: routes.store ?? "", token: credential })

export const requests = computed(() => requestsWith(user.value?.credential ?? ""))

const clientWith = (json: JsonFormat): ReadonlySignal<Client> =>
  computed(() =>
    makeClient({ baseUrl: origin, prefix: routes.store ?? "", token: user.value?.credential ?? "", clock, json })
  )

export const client = clientWith(JSON)

const textClient = clientWith({ parse: JsonText.parse, stringify: JSON.stringify })

const followBy =
  (client: ReadonlySignal<Client>) =>
  (options: FollowOptions): AsyncIterable<FollowEvent> =>
    client.value.follow({
      ...options,
      onStatus: status => {
        if (status.type === "disconnected") checkHealth()
        options.onStatus?.(status)
      }
    })

/** Follows the change log. After a lost connection the health is checked at once. */
export const follow = followBy(client)

/** The same with values as JSON text, as written. */
export const followTexts = followBy(textClient)

const sessionsWith = (token: string): Sessions =>
  makeSessions({ baseUrl: origin, path: routes.gateway ?? "/ws", token, clock, onStatus: onSessionsStatus })

export const isGatewayConnected = signal(true)

const onSessionsStatus = ({ type }: ConnectionStatus): void => {
  isGatewayConnected.value = type === "connected"
  if (type === "disconnected") checkHealth()
}

/** The client of sessions. It is closed before it is replaced. */
export const sessions = signal<Sessions | undefined>(undefined)

/** Whether the connection of sessions is being opened for the first time. */
export const isOpeningSessions = signal(false)

/** Why the gateway refuses the current token; `""` if it does not. */
export const sessionsRefusal = signal("")

/** Why the connection of sessions cannot be opened yet, while it is retried. */
export const sessionsProblem = signal("")

/** Whether the user has entered a token for sessions, in addition to the credential of the store. */
export const hasSessionToken = computed(() => sessionToken.value !== undefined)
export const sessionsIdentity = computed(() => claimsOf(sessionToken.value ?? user.value?.credential ?? ""))

/** Opens the connection of sessions. It is retried until it is open or refused. */
export const openSessions = async (): Promise<void> => {
  const { value } = user
  if (value === undefined || routes.gateway === undefined || isOpeningSessions.peek()) return
  sessions.peek()?.close()
  sessions.value = undefined
  isOpeningSessions.value = true
  const backoff = new Backoff(clock)
  for (let isDone = false; !isDone; ) {
    const opened = sessionsWith(sessionToken.peek() ?? value.credential)
    try {
      await opened.connect()
      sessionsRefusal.value = ""
      sessionsProblem.value = ""
      sessions.value = opened
      isDone = true
    } catch (error) {
      opened.close()
      isDone = !isClientError(error) || !isTransient(error)
      sessionsRefusal.value = isDone ? messageOf(error) : ""
      sessionsProblem.value = isDone ? "" : messageOf(error)
      const ms = backoff.next(isClientError(error) && "retryAfterMs" in error ? error.retryAfterMs : 0)
      // The wait ends early when the service is available again.
      if (!isDone) await new Promise<void>(resolve => void clock.after(ms, resolve))
    }
  }
  isOpeningSessions.value = false
}

export const useSessionToken = async (token: string): Promise<void> => {
  sessionToken.value = token
  sessionStorage.setItem(names.sessionToken, token)
  await openSessions()
}

/** Finds the access of a credential without a write: an empty batch is refused for read-only credentials. */
const storeAccess = async (credential: string): Promise<StoreAccess> => {
  if (routes.store === undefined) return "none"
  const requests = requestsWith(credential)
  try {
    await requests.ask({ method: "POST", path: "/batch", body: '{"operations":[]}' }, undefined, drain)
    return "write"
  } catch (error) {
    if (!(error instanceof Forbidden)) throw error
  }
  await requests.ask({ path: "/changes", query: { after: Number.MAX_SAFE_INTEGER, limit: 1 } }, undefined, drain)
  return "read"
}

export const drain = async (response: Response): Promise<void> => {
  await response.text()
}

/** The access of a credential. If the store refuses it, it may be a token of sessions. */
const accessOf = async (credential: string): Promise<StoreAccess> => {
  try {
    return await storeAccess(credential)
  } catch (error) {
    const isToken = /^[\w-]+\.[\w-]+\.[\w-]+$/.test(credential)
    if (!(error instanceof Unauthorized) || routes.gateway === undefined || !isToken) throw error
    const tried = sessionsWith(credential)
    try {
      await tried.connect()
      return "none"
    } finally {
      tried.close()
    }
  }
}

/** Signs in with a key or a token. Returns false if the service is unavailable. */
export const signIn = async (credential: string): Promise<boolean> => {
  isChecking.value = true
  refusal.value = ""
  try {
    const store = await accessOf(credential)
    sessionStorage.setItem(names.credential, credential)
    user.value = { credential, store }
    return true
  } catch (error) {
    if (error instanceof Unauthorized) clear()
    refusal.value = error instanceof Unauthorized ? "Invalid key or token." : messageOf(error)
    return !(error instanceof ConnectionFailed || error instanceof ServiceUnavailable)
  } finally {
    isChecking.value = false
  }
}

/** Signs in with the stored credential, if any. It is retried while the service is unavailable. */
export const resume = async (): Promise<void> => {
  const credential = sessionStorage.getItem(names.credential)
  sessionToken.value = sessionStorage.getItem(names.sessionToken) ?? undefined
  if (credential === null) return
  while (user.value === undefined && sessionStorage.getItem(names.credential) === credential) {
    if (await signIn(credential)) return
    await pause(1000)
  }
}
