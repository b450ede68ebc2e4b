/** The event stream of a run: what the client lacks, then the events of the session as those of AG-UI, then how it ended. */
import { Effect } from "effect"
import { type AgUiEvent, encode } from "../../AgUi/Protocol.ts"
import type { Conversation } from "../../Client/Conversation/Conversation.ts"
import type { SessionEvent } from "../../Client/SessionModel.ts"
import { closeCodes } from "../Protocol/Codes.ts"
import type { Frame } from "../Sessions.ts"
import type { Encoding, Reason } from "../Streams/EventStream.ts"
import type { Target } from "../Streams/Plan.ts"
import type { Followed } from "../Streams/Turns.ts"
import type { RunAgentInput } from "./Input.ts"
import { isEmpty } from "./Plan.ts"
import * as Runs from "./Runs.ts"
import type { Translation } from "./Translation.ts"

/** Why a stream has ended before its run, as the code of `RUN_ERROR`. */
const endings: Readonly<Record<Reason, readonly [code: string, message: string]>> = {
  complete: ["internal", "The stream has ended"],
  deleted: ["session_deleted", "The thread was deleted"],
  lost: ["history_lost", "The history of the thread was lost"],
  unreadable: ["internal", "The events of the thread cannot be read"],
  slow: [closeCodes.slowConsumer.name, "The events were not read in time"],
  busy: [closeCodes.rateLimited.name, "Other clients need the connection or its memory"],
  draining: [closeCodes.goingAway.name, "The server is shutting down"],
  expired: [closeCodes.tokenExpired.name, "The token has expired"],
  duration: [closeCodes.goingAway.name, "The stream has ended"]
}

/** The end of a stream before the end of its run, which can be joined again unless its thread is gone. */
const ended = (reason: Reason): AgUiEvent => {
  const [code, text] = endings[reason]
  const again = reason !== "deleted"
  const message = again ? `${text}; run again with the same runId` : text
  return { type: "RUN_ERROR", code, message, metadata: { "causeway.retryable": again } }
}

const bytesOf = (events: ReadonlyArray<AgUiEvent>): Uint8Array => Buffer.from(events.map(encode).join(""))

/**
 * The events at the end of a run. They begin with the messages in their order if the client has them in another one, which
 * happens when turns overlap.
 */
const lastEvents = (
  translation: Translation,
  end: AgUiEvent,
  reread: Effect.Effect<Conversation, unknown>
): Effect.Effect<ReadonlyArray<AgUiEvent>> => {
  const closing = translation.end()
  if (!translation.needsSnapshot) return Effect.succeed([...closing, end])
  return Effect.match(reread, {
    onFailure: () => [...closing, ended("unreadable")],
    onSuccess: conversation => [...closing, ...Runs.correction(conversation), end]
  })
}

/**
 * How a run is written, from a state of the conversation on. `answered` are the requests that were answered although their
 * resolution has not arrived, by `seq`.
 */
export const encodingOf = (
  input: RunAgentInput,
  { isJoined, target: { turnId } }: Followed<Target>,
  answered: ReadonlySet<number>,
  conversation: Conversation,
  reread: Effect.Effect<Conversation, unknown>
) => {
  // A client without a state that joins does not have that of the agent.
  const hasState = isJoined !== true || !isEmpty(input.state)
  const { events, translation } = Runs.join(input, conversation, input.messages, hasState)
  const end = (of: Conversation) => Runs.endOf(input, of, translation.names, turnId, answered)
  const over = end(conversation)
  const encoding: Encoding = {
    start: bytesOf(over === undefined ? events : [...events, ...translation.end(), over]),
    isOver: over !== undefined,
    events: (frames: ReadonlyArray<Frame>) => {
      const added = frames.flatMap(({ data }) => translation.add(JSON.parse(data.toString("utf8")) as SessionEvent))
      const last = end(translation.conversation)
      return last === undefined
        ? bytesOf(added)
        : Effect.map(lastEvents(translation, last, reread), rest => bytesOf([...added, ...rest]))
    },
    end: reason => bytesOf(over === undefined ? [...translation.end(), ended(reason)] : [])
  }
  return { characters: () => translation.characters, encoding }
}
