/** Clients that follow the events of a session: that of the Durable Streams protocol, and the client of this package. */
import { stream } from "@durable-streams/client"
import { Effect, Option } from "effect"
import type { SessionEvent } from "../../../src/Client/SessionModel.ts"
import type { Sessions } from "../../../src/Client/Sessions.ts"
import type { Changes } from "../../../src/Simulator/Changes.ts"
import type { Nodes } from "./Nodes.ts"
import { Story } from "./Story.ts"

type Headers = Readonly<Record<string, string>>

/** One attempt: the next one is made with the offset that was reached. */
const backoffOptions = { initialDelay: 10, maxDelay: 20, multiplier: 1, maxRetries: 0 }

/** Follows a session by `@durable-streams/client` until the scope closes, from where it was after each failure. */
export const followDurably = (
  nodes: Nodes,
  sessionId: string,
  headers: Headers,
  live: "sse" | "long-poll",
  onEvent: Changes
) =>
  Effect.gen(function* () {
    const story = new Story(onEvent)
    let offset = "-1"
    const attempt = Effect.tryPromise(async signal => {
      const address = `${nodes.url}/api/v1/sessions/${sessionId}/events`
      const response = await stream<SessionEvent>({ url: address, offset, live, headers, signal, backoffOptions })
      response.subscribeJson(batch => {
        try {
          for (const event of batch.items) story.add(event)
          offset = batch.offset
        } catch (error) {
          story.fail(error)
        }
      })
      await response.closed
    })
    const follow = Effect.match(attempt, {
      onFailure: ({ error }) => nodes.note(`Durable Streams of ${sessionId}: ${String(error)}`),
      onSuccess: () => nodes.note(`Durable Streams of ${sessionId}: ended`)
    })
    yield* Effect.forkScoped(nodes.persist(Effect.as(follow, Option.none())))
    return story
  })

/** Follows a session by the client of this package until the scope closes. It connects again by itself. */
export const followByClient = (sessions: Sessions, sessionId: string) =>
  Effect.gen(function* () {
    const story = new Story()
    const following = Effect.promise(async signal => {
      for await (const update of sessions.subscribe(sessionId, { fold: true, signal })) {
        if (update.type === "conversation") story.replace(update.conversation)
        else if (update.type === "event") story.add(update.event)
        else if (update.type !== "synced") throw new Error(`The client has received ${update.type}`)
      }
    })
    yield* Effect.forkScoped(Effect.catchAllDefect(following, error => Effect.sync(() => story.fail(error))))
    return story
  })

/** Calls the service until it succeeds. */
export const call = <A>(nodes: Nodes, what: string, promise: () => Promise<A>): Effect.Effect<A> =>
  nodes.persist(
    Effect.tryPromise(promise).pipe(
      Effect.tapError(({ error }) => Effect.sync(() => nodes.note(`${what}: ${String(error)}`))),
      Effect.option
    )
  )

/** Requests an address until the answer is a success. Any other is a defect, except where the service is unavailable. */
export const request = (nodes: Nodes, path: string, init: RequestInit) => {
  const answer = Effect.tryPromise(async signal => {
    const response = await fetch(`${nodes.url}${path}`, { ...init, signal })
    return { status: response.status, text: await response.text() }
  })
  return nodes.persist(
    Effect.flatMap(Effect.option(answer), found => {
      if (Option.isNone(found) || found.value.status >= 500) return Effect.succeedNone
      const { status, text } = found.value
      return status < 300 ? Effect.succeedSome(text) : Effect.dieMessage(`${path}: ${status} ${text}`)
    })
  )
}
