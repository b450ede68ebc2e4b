/** The changes of one entry, from the change log. */
import { useRef, useState } from "preact/hooks"
import { format } from "../JsonText.ts"
import { readEnd } from "../Service/LogEnd.ts"
import { retryUntilDone } from "../Service/Pause.ts"
import { Button } from "../Widgets/Controls.tsx"
import { now, useWork } from "../Widgets/Hooks.ts"
import { indexAfter, isAlone } from "../Widgets/Pane.tsx"
import { ago, dateAndTime, isolated } from "../Widgets/Text.ts"
import { Diff } from "../Widgets/VisibleText.tsx"
import { historyOf } from "./Entries.ts"
import { type HistoryPart, isExpiry, nothing, plus, type TextChange } from "./OpenEntry.ts"

interface Props {
  readonly namespace: string
  readonly entryKey: string
  /** Differs after each change of the entry. */
  readonly revision: string
  /** Edits an earlier value. Without it there is no such button. */
  readonly onTake: ((value: string) => void) | undefined
}

const titleOf = (change: TextChange): string => {
  if (change.op === "set") return `Version ${change.version}`
  return isExpiry(change) ? "Expired" : "Deleted"
}

/** The title of what precedes the first known change. */
const titleBefore = ({ version }: TextChange): string => (version === 1 ? "Before" : "No longer kept")

const textOf = (change: TextChange | undefined): string =>
  change === undefined || change.op === "delete" ? "" : format(change.value)

/** The history up to a change (its `seq`), or up to the end of the log. After a revision, new changes are added. */
const useHistory = (namespace: string, key: string, end: number | undefined, revision: string) => {
  const [part, setPart] = useState(nothing)
  const [isComplete, setComplete] = useState(false)
  const [problem, setProblem] = useState("")
  const kept = useRef({ end, part })

  const keep = (part: HistoryPart) => {
    kept.current = { end, part }
    setPart(part)
  }
  const read = async (ended: AbortSignal) => {
    const range = { after: kept.current.part.after, end: end ?? (await readEnd(ended)).lastSeq }
    for await (const page of historyOf(namespace, key, range, ended)) keep(plus(kept.current.part, page))
    setComplete(true)
  }
  const readAll = (ended: AbortSignal) => {
    if (kept.current.end !== end) {
      keep(nothing)
      setComplete(false)
    }
    return retryUntilDone(() => read(ended), ended, setProblem)
  }
  useWork(readAll, setProblem, [namespace, key, end, revision])
  return { ...part, isComplete, problem }
}

interface VersionsProps {
  readonly changes: ReadonlyArray<TextChange>
  readonly present: TextChange
  readonly onChoose: (seq: number) => void
}

const Versions = ({ changes, onChoose, present }: VersionsProps) => {
  const list = useRef<HTMLOListElement>(null)
  const move = (event: KeyboardEvent) => {
    const rows = [...(list.current?.querySelectorAll("button") ?? [])]
    const from = rows.indexOf(event.target as HTMLButtonElement)
    const index = indexAfter(event.key, from, rows.length, { axis: "vertical", wraps: false })
    if (index === undefined || !isAlone(event)) return
    event.preventDefault()
    rows[index]?.focus()
  }
  return (
    <ol ref={list} class="history-list" aria-label="Versions" onKeyDown={move}>
      {changes.toReversed().map(each => (
        <li key={each.seq}>
          <button
            type="button"
            class="row two"
            aria-current={each === present ? "true" : undefined}
            tabIndex={each === present ? 0 : -1}
            onClick={() => onChoose(each.seq)}
          >
            <span class="row-title">{titleOf(each).toLowerCase()}</span>
            <span class="row-note" title={dateAndTime(each.timestamp)}>
              {!isExpiry(each) && `${isolated(each.actor)} · `}
              {ago(each.timestamp, now.value)}
            </span>
          </button>
        </li>
      ))}
    </ol>
  )
}

export const History = ({ entryKey, namespace, onTake, revision }: Props) => {
  /** The `seq` of the last change to show; the end of the log without it. */
  const [end, setEnd] = useState<number>()
  const { before, changes, isComplete, problem } = useHistory(namespace, entryKey, end, revision)
  const [chosen, setChosen] = useState<number>()
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
      <Versions changes={changes} present={change} onChoose={setChosen} />
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
            {problem !== "" ? ` · ${problem}` : !isComplete && " · loading…"}
          </p>
          {end !== undefined && <Button text="Newest changes" look="quiet" onClick={() => setEnd(undefined)} />}
          {isComplete && before !== undefined && (
            <Button text="Older changes" look="quiet" onClick={() => setEnd(before.seq)} />
          )}
          {onTake !== undefined && change.op === "set" && (
            <Button text="Edit this value" onClick={() => onTake(change.value)} />
          )}
        </div>
      </div>
    </div>
  )
}
