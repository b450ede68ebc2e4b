/** The changes of one entry, from the change log. */
import { useEffect, useRef, useState } from "preact/hooks"
import { format } from "../Json/JsonText.ts"
import { isAbort, messageOf } from "../Service/Failure.ts"
import { retryUntilDone } from "../Service/Retry.ts"
import { Diff } from "../Widgets/Diff.tsx"
import { indexAfter, isAlone } from "../Widgets/Keys.ts"
import { now } from "../Widgets/Now.ts"
import { ago, dateAndTime, isolated } from "../Widgets/Text.ts"
import { endOfLog, historyOf } from "./Entries.ts"
import type { TextChange } from "./TextEntry.ts"

interface Props {
  readonly namespace: string
  readonly entryKey: string
  /** Edits an earlier value. Without it there is no such button. */
  readonly onTake: ((value: string) => void) | undefined
}

/** The maximum number of changes in a part, and of characters in their values. */
const max = { changes: 500, characters: 16 * 1024 * 1024 }

/** A part of the changes, oldest first. */
interface Part {
  /** The change before the first one, if it is kept. */
  readonly before: TextChange | undefined
  readonly changes: ReadonlyArray<TextChange>
}

const nothing: Part = { before: undefined, changes: [] }

/** The latest changes within the limits. */
const latest = (changes: ReadonlyArray<TextChange>): Part => {
  let first = changes.length
  for (let characters = 0; first > 0 && changes.length - first < max.changes; first--) {
    characters += changes[first - 1]!.value.length
    if (characters > max.characters && first < changes.length) break
  }
  return { before: changes[first - 1], changes: changes.slice(first) }
}

const titleOf = ({ op, version }: TextChange): string => (op === "delete" ? "Deleted" : `Version ${version}`)

/** The title of what precedes the first known change. */
const titleBefore = ({ version }: TextChange): string => (version === 1 ? "Before" : "No longer kept")

const textOf = (change: TextChange | undefined): string =>
  change === undefined || change.op === "delete" ? "" : format(change.value)

export const History = ({ entryKey, namespace, onTake }: Props) => {
  const [{ before, changes }, setPart] = useState(nothing)
  /** The `seq` of the last change to show; the end of the log without it. */
  const [end, setEnd] = useState<number>()
  const [isComplete, setComplete] = useState(false)
  const [problem, setProblem] = useState("")
  const [chosen, setChosen] = useState<number>()

  useEffect(() => {
    const ended = new AbortController()
    const { signal } = ended
    const read = async () => {
      let part = nothing
      for await (const page of historyOf(namespace, entryKey, end ?? (await endOfLog(signal)), signal)) {
        if (page.length === 0) continue
        part = latest([...(part.before === undefined ? [] : [part.before]), ...part.changes, ...page])
        setPart(part)
      }
      setComplete(true)
    }
    setPart(nothing)
    setComplete(false)
    retryUntilDone(read, signal, setProblem).catch((error: unknown) => {
      if (!isAbort(error)) setProblem(messageOf(error))
    })
    return () => ended.abort(new DOMException("The history is closed", "AbortError"))
  }, [namespace, entryKey, end])

  const list = useRef<HTMLOListElement>(null)
  const move = (event: KeyboardEvent) => {
    const rows = [...(list.current?.querySelectorAll("button") ?? [])]
    const from = rows.indexOf(event.target as HTMLButtonElement)
    const index = indexAfter(event.key, from, rows.length, { axis: "vertical", wraps: false })
    if (index === undefined || !isAlone(event)) return
    event.preventDefault()
    rows[index]?.focus()
  }

  const index = changes.findIndex(({ seq }) => seq === chosen)
  const shown = index === -1 ? changes.length - 1 : index
  const change = changes[shown]
  const previous = changes[shown - 1] ?? before

  if (change === undefined) {
    return (
      <p class="empty" role="status">
        {problem !== "" ? problem : isComplete ? "The change log has no changes of this key." : "Loading…"}
      </p>
    )
  }
  return (
    <div class="history">
      <ol ref={list} class="history-list" aria-label="Versions" onKeyDown={move}>
        {changes
          .map(each => (
            <li key={each.seq}>
              <button
                type="button"
                class="row two"
                aria-current={each === change ? "true" : undefined}
                tabIndex={each === change ? 0 : -1}
                onClick={() => setChosen(each.seq)}
              >
                <span class="row-title">{each.op === "delete" ? "deleted" : `version ${each.version}`}</span>
                <span class="row-note" title={dateAndTime(each.timestamp)}>
                  {isolated(each.actor)} · {ago(each.timestamp, now.value)}
                </span>
              </button>
            </li>
          ))
          .reverse()}
      </ol>
      <div class="history-diff">
        <Diff
          left={textOf(previous)}
          right={textOf(change)}
          leftTitle={previous === undefined ? titleBefore(change) : titleOf(previous)}
          rightTitle={titleOf(change)}
        />
        <div class="pane-actions">
          <p class="muted grow">
            {dateAndTime(change.timestamp)} · change {change.seq}
            {!isComplete && (problem === "" ? " · loading…" : ` · ${problem}`)}
          </p>
          {end !== undefined && (
            <button type="button" class="button quiet" onClick={() => setEnd(undefined)}>
              Newest changes
            </button>
          )}
          {isComplete && before !== undefined && (
            <button type="button" class="button quiet" onClick={() => setEnd(before.seq)}>
              Older changes
            </button>
          )}
          {onTake !== undefined && change.op === "set" && (
            <button type="button" class="button" onClick={() => onTake(change.value)}>
              Edit this value
            </button>
          )}
        </div>
      </div>
    </div>
  )
}
