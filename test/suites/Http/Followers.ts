/** Followers of the change feed, each from its own connection. */
import { Effect, type Scope } from "effect"
import { type ClientOptions, WebSocket } from "ws"
import { keys } from "../../Harness.ts"
import { bearer, Site } from "./Fixture.ts"

const authorization = bearer(keys.read)

/** A WebSocket with the credential that reads, or with other options; the scope ends it. */
export const webSocket = (
  query: string,
  protocols: ReadonlyArray<string> = [],
  options: ClientOptions = { headers: { authorization } }
): Effect.Effect<WebSocket, never, Site | Scope.Scope> =>
  Effect.flatMap(Site, ({ port }) =>
    Effect.acquireRelease(
      Effect.sync(() => new WebSocket(`ws://127.0.0.1:${port}/api/v1/changes/ws?${query}`, [...protocols], options)),
      socket => Effect.sync(() => socket.terminate())
    )
  )

/** Waits for an event of a WebSocket; an error fails. */
export const once = <A = void>(socket: WebSocket, event: "open" | "message" | "close"): Effect.Effect<A, Error> =>
  Effect.async(resume => {
    socket.once(event, (value: A) => resume(Effect.succeed(value)))
    socket.once("error", error => resume(Effect.fail(error)))
  })

/** An answer of an event stream, and its text until that is enough. An error has all of it. */
export const events = (
  query: string,
  isEnough: (text: string) => boolean,
  headers: Readonly<Record<string, string>> = {}
) =>
  Effect.flatMap(Site, ({ url }) =>
    Effect.promise(async signal => {
      const target = `${url}/api/v1/changes/stream?${query}`
      const answer = await fetch(target, { headers: { authorization, ...headers }, signal })
      const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader()
      let text = ""
      while (text === "" || (answer.status === 200 && !isEnough(text))) text += (await reader.read()).value ?? ""
      await reader.cancel()
      return { status: answer.status, headers: answer.headers, text }
    })
  )
