/** The events of a session as the gateway sends them. */
import { useState } from "preact/hooks"
import type { SessionEvent } from "../../Client/Client.ts"
import { count, cut, dateAndTime, time } from "../Widgets/Text.ts"
import { VirtualList } from "../Widgets/VirtualList.tsx"

interface Props {
  readonly events: ReadonlyArray<SessionEvent>
  readonly revision: number
}

/** What an event has beside its envelope. */
const bodyOf = ({ seq, sessionId, timestamp, traceId, type, ...body }: SessionEvent): string => JSON.stringify(body)

const mostShown = 20_000

export const EventsPanel = ({ events, revision }: Props) => {
  const [chosen, setChosen] = useState<SessionEvent>()
  return (
    <section class="side" aria-label="Events">
      <VirtualList
        label="Events"
        count={events.length}
        rowHeight={28}
        isFollowing={chosen === undefined}
        revision={revision}
        keyOf={index => events[index]?.seq ?? index}
        row={index => {
          const event = events[index]
          if (event === undefined) return null
          return (
            <button
              type="button"
              class="row event-row"
              aria-current={event === chosen ? "true" : undefined}
              onClick={() => setChosen(event === chosen ? undefined : event)}
            >
              <span class="feed-seq">{event.seq}</span>
              <span class="event-type">{event.type}</span>
              <span class="row-title mono muted">{cut(bodyOf(event), 160)}</span>
            </button>
          )
        }}
      />
      {chosen !== undefined && (
        <div class="event-detail">
          <p class="muted">
            {chosen.type} · {dateAndTime(chosen.timestamp)}
          </p>
          <pre tabIndex={0}>{cut(JSON.stringify(chosen, undefined, 2), mostShown)}</pre>
        </div>
      )}
      <p class="pane-foot">
        <span>{count(events.length)} events</span>
        <span>{events.length > 0 && time(events.at(-1)!.timestamp)}</span>
      </p>
    </section>
  )
}
