/** The event stream of a run: what the client lacks, then the events of the session as those of AG-UI, then how it ended. */
import { Effect, Either } from "effect"
import { type AgUiEvent, type ClientMessage, encode } from "../../AgUi/Protocol.ts"
import type { Conversation } from "../../Client/Conversation/Conversation.ts"
import type { SessionEvent } from "../../Client/SessionModel.ts"
import { closeCodes } from "../Protocol/Codes.ts"
import type { Frame } from "../Sessions.ts"
import type { Encoding, Reason } from "../Streams/EventStream.ts"
import * as Runs from "./Runs.ts"
import type { Translation } from "./Translation.ts"

/** What a stream needs to know of its run. */
export interface Request extends Runs.Run {
  readonly turnId: string
  /** The messages that the client has. */
  readonly messages: ReadonlyArray<ClientMessage>
  /** The requests that were answered although their resolution has not arrived, by `seq`. */
  readonly answered: ReadonlySet<number>
  /** Whether the client has the state of the agent. */
  readonly hasState: boolean
}

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
export const ended = (reason: Reason): AgUiEvent => {
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
): Effect.Effect<Uint8Array> => {
  const closing = translation.end()
  if (!translation.needsSnapshot) return Effect.succeed(bytesOf([...closing, end]))
  return Effect.map(Effect.either(reread), conversation =>
    Either.isRight(conversation)
      ? bytesOf([...closing, ...Runs.correction(conversation.right), end])
      : bytesOf([...closing, ended("unreadable")])
  )
}

/** How a run is written, from a state of the conversation on. */
export const encodingOf = (
  request: Request,
  conversation: Conversation,
  reread: Effect.Effect<Conversation, unknown>
) => {
  const end = (of: Conversation) => Runs.endOf(request, of, translation.names, request.turnId, request.answered)
  const { events, translation } = Runs.join(request, conversation, request.messages, request.hasState)
  const over = end(conversation)
  const encoding: Encoding = {
    start: bytesOf(over === undefined ? events : [...events, ...translation.end(), over]),
    isOver: over !== undefined,
    events: (frames: ReadonlyArray<Frame>) => {
      const texts: Array<string> = []
      for (const { data } of frames) {
        for (const event of translation.add(JSON.parse(data.toString("utf8")) as SessionEvent))
          texts.push(encode(event))
      }
      const last = end(translation.conversation)
      const bytes = Buffer.from(texts.join(""))
      return last === undefined
        ? bytes
        : Effect.map(lastEvents(translation, last, reread), rest => Buffer.concat([bytes, rest]))
    },
    end: reason => bytesOf(over === undefined ? [...translation.end(), ended(reason)] : [])
  }
  return { characters: () => translation.characters, encoding }
}
