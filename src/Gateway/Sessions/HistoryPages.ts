/** A page of missed events of a subscription. */
import { type Context, Effect, Option } from "effect"
import type { History, SessionEvents } from "../SessionEvents.ts"
import type { Subscription } from "../Sessions.ts"
import { toFrames } from "./Journal.ts"

/**
 * Reads pages of one history of a session. If the history was replaced, or ends before the position, `onLost` is called
 * and no events are returned.
 */
export const make =
  (
    events: Pick<Context.Tag.Service<SessionEvents>, "read">,
    session: string,
    { epoch, headSeq }: Pick<History, "epoch" | "headSeq">,
    onLost: () => void
  ): Subscription["read"] =>
  (after, limit) =>
    Effect.map(
      events.read(session, after, limit),
      Option.match({
        onNone: () => ({ frames: [], trimmedSeq: headSeq }),
        onSome: ({ events, history }) => {
          const isSame = history.epoch === epoch && history.headSeq >= after
          if (isSame) return { frames: toFrames(events), trimmedSeq: history.trimmedSeq }
          onLost()
          return { frames: [], trimmedSeq: headSeq }
        }
      })
    )
