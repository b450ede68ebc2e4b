/** The changes of one entry, from the change log. */
import { useEffect, useRef, useState } from "preact/hooks"
import { format } from "../Json/JsonText.ts"
import { isAbort, messageOf } from "../Service/Failure.ts"
import { persist } from "../Service/Persist.ts"
import { Diff } from "../Widgets/Diff.tsx"
import { isAlone, placeAfter } from "../Widgets/Keys.ts"
import { now } from "../Widgets/Now.ts"
import { ago, dateAndTime, isolated } from "../Widgets/Text.ts"
import { historyOf, type TextChange } from "./Entries.ts"

interface Props {
  readonly namespace: string
  readonly entryKey: string
  /** Takes a value of the past into the editor. */
  readonly onTake: ((value: string) => void) | undefined
}

/** The most changes that are kept here, and the most bytes of their values; older ones make room. */
const most = { changes: 500, characters: 16 * 1024 * 1024 }

/** The latest changes within the bounds. */
const bounded = (changes: ReadonlyArray<TextChange>): ReadonlyArray<TextChange> => {
  const kept: Array<TextChange> = []
  let characters = 0
  for (let i = changes.length - 1; i >= 0 && kept.length < most.changes; i--) {
    characters += changes[i]!.value.length
    if (characters > most.characters && kept.length > 0) break
    kept.unshift(changes[i]!)
  }
  return kept
}

const textOf = (change: TextChange | undefined): string =>
  change === undefined || change.op === "delete" ? "" : format(change.value)

export const History = ({ entryKey, namespace, onTake }: Props) => {
  const [changes, setChanges] = useState<ReadonlyArray<TextChange>>([])
  const [isComplete, setComplete] = useState(false)
  const [problem, setProblem] = useState("")
  const [chosen, setChosen] = useState<number>()

  useEffect(() => {
    const ended = new AbortController()
    const read = async () => {
      let all: ReadonlyArray<TextChange> = []
      for await (const page of historyOf(namespace, entryKey, ended.signal)) {
        if (page.length === 0) continue
        all = bounded([...all, ...page])
        setChanges(all)
      }
      setComplete(true)
    }
    persist(read, ended.signal, setProblem).catch((error: unknown) => {
      if (!isAbort(error)) setProblem(messageOf(error))
    })
    return () => ended.abort(new DOMException("The history is closed", "AbortError"))
  }, [namespace, entryKey])

  const list = useRef<HTMLOListElement>(null)
  const move = (event: KeyboardEvent) => {
    const rows = [...(list.current?.querySelectorAll("button") ?? [])]
    const from = rows.indexOf(event.target as HTMLButtonElement)
    const place = placeAfter(event.key, from, rows.length, { axis: "vertical", wraps: false })
    if (place === undefined || !isAlone(event)) return
    event.preventDefault()
    rows[place]?.focus()
  }

  const index = changes.findIndex(({ seq }) => seq === chosen)
  const shown = index === -1 ? changes.length - 1 : index
  const change = changes[shown]

  if (change === undefined) {
    return (
      <p class="empty" role="status">
        {problem !== "" ? problem : isComplete ? "The change log keeps no change of this key." : "Reading the log…"}
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
          left={textOf(changes[shown - 1])}
          right={textOf(change)}
          leftTitle={shown === 0 ? "Before" : `Version ${changes[shown - 1]!.version}`}
          rightTitle={change.op === "delete" ? "Deleted" : `Version ${change.version}`}
        />
        <div class="pane-actions">
          <p class="muted grow">
            {dateAndTime(change.timestamp)} · change {change.seq}
            {!isComplete && (problem === "" ? " · reading…" : ` · ${problem}`)}
          </p>
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
