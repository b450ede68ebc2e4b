/**
 * Who uses the console, and the clients that act for them. The credential is kept for this tab alone.
 */
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
import { isTransient } from "../../Client/Retry.ts"
import { Backoff } from "../../Client/Time.ts"
import { parseChanges } from "../Json/Records.ts"
import { messageOf } from "./Failure.ts"
import { doubt } from "./Health.ts"
import { forget, names } from "./Kept.ts"
import { clock, pause } from "./Pause.ts"
import { routes } from "./Routes.ts"
import { claimsOf } from "./Token.ts"

/** What the store lets the user do; `none` where the application has no store, or the credential is not for it. */
export type StoreAccess = "write" | "read" | "none"

export interface User {
  readonly credential: string
  readonly store: StoreAccess
}

/** Who is signed in. */
export const user = signal<User | undefined>(undefined)

/** Whether a credential is being checked. */
export const isChecking = signal(false)

/** Why nobody is signed in, where there was an attempt. */
export const refusal = signal("")

/** The token of sessions, where it is another one than the credential of the store. */
const sessionToken = signal<string | undefined>(undefined)

/** Whether the user may change entries. */
export const canWrite = computed(() => user.value?.store === "write")

/** Whether the user may talk to agents: with a credential that only reads, nothing that writes is offered. */
export const canConverse = computed(() => user.value?.store !== "read" || sessionToken.value !== undefined)

const { origin } = location

const requestsWith = (credential: string): Requests =>
  requestsOf({ baseUrl: origin, prefix: routes.store ?? "", token: credential })

/** Requests to the store with the credential of the user. */
export const requests = computed(() => requestsWith(user.value?.credential ?? ""))

const clientWith = (json: JsonFormat): ReadonlySignal<Client> =>
  computed(() =>
    makeClient({ baseUrl: origin, prefix: routes.store ?? "", token: user.value?.credential ?? "", clock, json })
  )

/** The client of the store. */
export const client = clientWith(JSON)

const textClient = clientWith({ parse: parseChanges, stringify: JSON.stringify })

const followBy =
  (client: ReadonlySignal<Client>) =>
  (options: FollowOptions): AsyncIterable<FollowEvent> =>
    client.value.follow({
      ...options,
      onStatus: status => {
        if (status.type === "disconnected") doubt()
        options.onStatus?.(status)
      }
    })

/** Follows the change log. That a connection is lost is told to the health, too. */
export const follow = followBy(client)

/** The same with values as JSON text, as they were written. */
export const followTexts = followBy(textClient)

const sessionsWith = (token: string): Sessions =>
  makeSessions({
    baseUrl: origin,
    path: routes.gateway ?? "/ws",
    token,
    clock,
    onStatus: onSessionsStatus
  })

/** Whether the connection of sessions is there. */
export const isGatewayConnected = signal(true)

const onSessionsStatus = ({ type }: ConnectionStatus): void => {
  isGatewayConnected.value = type === "connected"
  if (type === "disconnected") doubt()
}

/** The client of sessions. One that is no longer used has been closed. */
export const sessions = signal<Sessions | undefined>(undefined)

/** Whether the connection of sessions is being opened for the first time. */
export const isOpeningSessions = signal(false)

/** Why sessions cannot be had with the present token. */
export const sessionsRefusal = signal("")

/** Why there is no connection of sessions yet, where the next try may do better. */
export const sessionsProblem = signal("")

/** Whether a token for sessions was given, beside the credential of the store. */
export const hasSessionToken = computed(() => sessionToken.value !== undefined)

/** Whose sessions they are, where the token says so. */
export const sessionsIdentity = computed(() => claimsOf(sessionToken.value ?? user.value?.credential ?? ""))

const closeSessions = (): void => {
  sessions.peek()?.close()
  sessions.value = undefined
}

/** Tries once. Returns how long to wait for the next try, in milliseconds, unless sessions are there or refused. */
const tryToOpenSessions = async (credential: string, backoff: Backoff): Promise<number | undefined> => {
  const opened = sessionsWith(credential)
  try {
    await opened.connect()
    sessionsRefusal.value = ""
    sessionsProblem.value = ""
    sessions.value = opened
    return undefined
  } catch (error) {
    opened.close()
    const mayDoBetter = isClientError(error) && isTransient(error)
    sessionsRefusal.value = mayDoBetter ? "" : messageOf(error)
    sessionsProblem.value = mayDoBetter ? messageOf(error) : ""
    if (!mayDoBetter) return undefined
    return backoff.next("retryAfterMs" in error ? error.retryAfterMs : 0)
  }
}

/** Opens the connection of sessions, in as many tries as it takes, and notes why it is refused where it is. */
export const openSessions = async (): Promise<void> => {
  const { value } = user
  if (value === undefined || routes.gateway === undefined || isOpeningSessions.peek()) return
  closeSessions()
  isOpeningSessions.value = true
  const backoff = new Backoff(clock)
  try {
    for (;;) {
      const ms = await tryToOpenSessions(sessionToken.peek() ?? value.credential, backoff)
      if (ms === undefined) return
      // It ends early when the service answers again.
      await new Promise<void>(resolve => void clock.after(ms, resolve))
    }
  } finally {
    isOpeningSessions.value = false
  }
}

/** Takes a token for sessions alone. */
export const useSessionToken = async (token: string): Promise<void> => {
  sessionToken.value = token
  sessionStorage.setItem(names.sessionToken, token)
  await openSessions()
}

/** Finds out what a credential may do, without changing anything: a batch of no operations is refused to readers. */
const storeAccess = async (credential: string): Promise<StoreAccess> => {
  if (routes.store === undefined) return "none"
  const asked = requestsWith(credential)
  try {
    await asked.ask({ method: "POST", path: "/batch", body: '{"operations":[]}' }, undefined, drain)
    return "write"
  } catch (error) {
    if (!(error instanceof Forbidden)) throw error
  }
  await asked.ask({ path: "/changes", query: { after: Number.MAX_SAFE_INTEGER, limit: 1 } }, undefined, drain)
  return "read"
}

const drain = async (response: Response): Promise<void> => {
  await response.text()
}

const looksLikeToken = (credential: string): boolean => /^[\w-]+\.[\w-]+\.[\w-]+$/.test(credential)

/** What a credential may do. One that the store refuses may be a token of sessions. */
const accessOf = async (credential: string): Promise<StoreAccess> => {
  try {
    return await storeAccess(credential)
  } catch (error) {
    if (!(error instanceof Unauthorized) || routes.gateway === undefined || !looksLikeToken(credential)) throw error
    const tried = sessionsWith(credential)
    try {
      await tried.connect()
      return "none"
    } finally {
      tried.close()
    }
  }
}

/** Signs in with a key or a token. Returns whether the service has answered. */
export const signIn = async (credential: string): Promise<boolean> => {
  isChecking.value = true
  refusal.value = ""
  try {
    const store = await accessOf(credential)
    sessionStorage.setItem(names.credential, credential)
    user.value = { credential, store }
    return true
  } catch (error) {
    if (error instanceof Unauthorized) forget()
    refusal.value = error instanceof Unauthorized ? "The service does not know this key." : messageOf(error)
    return !(error instanceof ConnectionFailed || error instanceof ServiceUnavailable)
  } finally {
    isChecking.value = false
  }
}

/** Signs in with what the tab has kept, if anything. A service that does not answer yet is asked again. */
export const resume = async (): Promise<void> => {
  const credential = sessionStorage.getItem(names.credential)
  sessionToken.value = sessionStorage.getItem(names.sessionToken) ?? undefined
  if (credential === null) return
  while (user.value === undefined && sessionStorage.getItem(names.credential) === credential) {
    if (await signIn(credential)) return
    await pause(1000)
  }
}
