/** The events of a session, as the gateway sends them. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks"
import type { SessionEvent } from "../../Client/Client.ts"
import { FrameWork } from "../Service/Page.ts"
import { useDebounced } from "../Widgets/Hooks.ts"
import { SearchField } from "../Widgets/Pane.tsx"
import { count, counted, cut, dateAndTime, time, visibleJson } from "../Widgets/Text.ts"
import { VirtualList } from "../Widgets/VirtualList.tsx"
import { type EventLog, EventSearch } from "./EventLog.ts"

interface Props {
  readonly log: EventLog
  readonly revision: number
  /** Whether there are events before those in the log. */
  readonly hasOlder: boolean
  /** Reads some of them. */
  readonly onOlder: () => void
}

/** Older events are read while fewer than these are before the first one in view. */
const ahead = 100

const maxShown = 20_000

/** The starts of events. They are cached, because events may be large. */
const previews = new WeakMap<SessionEvent, string>()

/** An event without its envelope. Its ids are last, because they say little. */
const idsLast = ({ seq, sessionId, timestamp, traceId, type, ...body }: SessionEvent): object => {
  const isId = (name: string) => Number(name.endsWith("Id"))
  return Object.fromEntries(Object.entries(body).sort(([a], [b]) => isId(a) - isId(b)))
}

const previewOf = (event: SessionEvent): string => {
  const preview = previews.get(event) ?? visibleJson(cut(JSON.stringify(idsLast(event)), 160))
  previews.set(event, preview)
  return preview
}

type Found = { readonly events: ReadonlyArray<SessionEvent>; readonly isComplete: boolean }

/** The events that contain a text. The search runs in portions, so that the page stays responsive. */
const useFound = ({ hasOlder, log, revision }: Props, text: string): Found => {
  const [, setComplete] = useState(0)
  const state = useMemo(() => {
    const search = new EventSearch(text)
    let isComplete = false
    const work = new FrameWork(() => {
      isComplete = search.search(log.events)
      if (!isComplete) work.request()
      setComplete(n => n + 1)
    })
    return { search, work, isComplete: () => isComplete }
  }, [log, text])
  useEffect(() => {
    if (text !== "") state.work.request()
  }, [state, revision, text])
  useEffect(() => () => state.work.cancel(), [state])
  return text === ""
    ? { events: log.events, isComplete: true }
    : { events: state.search.found, isComplete: state.isComplete() && !hasOlder }
}

export const EventsPanel = (props: Props) => {
  const { hasOlder, log, onOlder, revision } = props
  const [chosen, setChosen] = useState<SessionEvent>()
  const [typed, setTyped] = useState("")
  const sought = useDebounced(typed.trim())
  const { events, isComplete } = useFound(props, sought)
  const firstInView = useRef(0)
  const readOlder = () => {
    if (hasOlder && (sought !== "" || firstInView.current < ahead)) onOlder()
  }
  // A search is one of all events.
  useEffect(readOlder, [log, revision, hasOlder, sought])
  const text = useMemo(() => visibleJson(cut(JSON.stringify(chosen, undefined, 2) ?? "", maxShown)), [chosen])
  const all = log.events
  return (
    <section class="side" aria-label="Events">
      <div class="pane-head">
        <SearchField label="Search events" placeholder="Type or content" value={typed} onInput={setTyped} />
      </div>
      <VirtualList
        label="Events"
        count={events.length}
        rowHeight={28}
        isFollowing={chosen === undefined}
        revision={revision}
        onRange={first => {
          firstInView.current = first
          readOlder()
        }}
        keyOf={index => events[index]?.seq ?? index}
        row={index => {
          const event = events[index]
          if (event === undefined) return null
          return (
            <button
              type="button"
              class="row event-row"
              aria-current={event.seq === chosen?.seq ? "true" : undefined}
              onClick={() => setChosen(event.seq === chosen?.seq ? undefined : event)}
            >
              <span class="event-seq">{event.seq}</span>
              <span class="event-type">{event.type}</span>
              <span class="row-title mono muted">{previewOf(event)}</span>
            </button>
          )
        }}
      />
      {chosen !== undefined && (
        <div class="event-detail">
          <p class="muted">
            {chosen.type} · {dateAndTime(chosen.timestamp)}
          </p>
          <pre tabIndex={0}>{text}</pre>
        </div>
      )}
      <p class="pane-foot">
        <span role={events === all ? undefined : "status"}>
          {events === all ? "" : `${isComplete ? "" : "searching, "}${count(events.length)} of `}
          {hasOlder && events === all ? "the newest " : ""}
          {counted(all.length, "event", "events")}
        </span>
        <span>{all.length > 0 && time(all.at(-1)!.timestamp)}</span>
      </p>
    </section>
  )
}
