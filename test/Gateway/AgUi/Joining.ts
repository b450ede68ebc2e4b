/** What the official client makes of the events for it, compared with the projection. */
import { HttpAgent, type Message } from "@ag-ui/client"
import * as Messages from "../../../src/AgUi/Messages.ts"
import { type AgUiEvent, type ClientMessage, encode } from "../../../src/AgUi/Protocol.ts"
import type { Conversation } from "../../../src/Client/Conversation/Conversation.ts"
import * as Fold from "../../../src/Client/Conversation/Fold.ts"
import type { SessionEvent } from "../../../src/Client/SessionModel.ts"
import * as Runs from "../../../src/Gateway/AgUi/Runs.ts"

const epoch = "0123456789abcdef"

const run = { threadId: "thread", runId: "run" }

/** The conversation after some events. */
export const foldOf = (events: ReadonlyArray<SessionEvent>): Conversation => {
  const fold = Fold.resume(Fold.empty(epoch))
  for (const event of events) Fold.add(fold, event)
  return fold.conversation
}

/** The events for a client that joins after some events and follows others. */
export const follow = (
  before: ReadonlyArray<SessionEvent>,
  after: ReadonlyArray<SessionEvent>,
  client: ReadonlyArray<ClientMessage>,
  hasState = true
): ReadonlyArray<AgUiEvent> => {
  const { events, translation } = Runs.join(run, foldOf(before), client, hasState)
  const following = after.flatMap(event => translation.add(event))
  const end = translation.end()
  const corrected = translation.needsSnapshot ? Runs.correction(foldOf([...before, ...after])) : []
  return [...events, ...following, ...end, ...corrected, { type: "RUN_FINISHED", ...run, outcome: { type: "success" } }]
}

/** An unmodified client whose requests are answered with the given events. */
export const makeClient = (messages: ReadonlyArray<Message> = []) => {
  let answer: (client: ReadonlyArray<ClientMessage>) => ReadonlyArray<AgUiEvent> = () => []
  const agent = new HttpAgent({
    url: "http://causeway.example",
    threadId: run.threadId,
    initialMessages: [...messages],
    fetch: async (_, init) => {
      const input = JSON.parse(String(init.body)) as { readonly messages: ReadonlyArray<ClientMessage> }
      const body = answer(input.messages).map(encode).join("")
      return new Response(body, { headers: { "content-type": "text/event-stream" } })
    }
  })
  return {
    agent,
    run: (next: typeof answer) => {
      answer = next
      return agent.runAgent({ runId: run.runId })
    }
  }
}

/** Messages as they are compared: arguments by their value. */
export const comparable = (messages: ReadonlyArray<object>): unknown =>
  messages.map(message => {
    const {
      content = "",
      toolCalls,
      ...others
    } = JSON.parse(JSON.stringify(message)) as {
      readonly content?: unknown
      readonly toolCalls?: ReadonlyArray<{
        readonly id: string
        readonly function: { name: string; arguments: string }
      }>
    }
    const calls = toolCalls?.map(({ function: call, id }) => {
      let args: unknown = call.arguments
      try {
        args = JSON.parse(call.arguments)
      } catch {}
      return { id, name: call.name, args }
    })
    return { ...others, content, ...(calls && { calls }) }
  })

/** The messages that a client has to have after some events. */
export const projection = (events: ReadonlyArray<SessionEvent>): ReadonlyArray<object> =>
  Messages.messagesOf(foldOf(events))
