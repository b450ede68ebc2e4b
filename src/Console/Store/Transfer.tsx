/** Import and export of a namespace, as lines of JSON (NDJSON). */
import { useEffect, useRef, useState } from "preact/hooks"
import type { Existing } from "../../Client/EntryLines.ts"
import { canWrite } from "../Service/Connection.ts"
import { isAbort, messageOf } from "../Service/Failure.ts"
import { Dialog } from "../Widgets/Dialog.tsx"
import { download } from "../Widgets/Download.ts"
import { Icon } from "../Widgets/Icon.tsx"
import { bytes, count } from "../Widgets/Text.ts"
import { listTexts } from "./Entries.ts"
import { bounds, importFile } from "./ImportFile.ts"
import type { KeyList } from "./KeyList.ts"

/** What a page can hold. More is for the command line. */
const maxBytes = 256 * 1024 * 1024

const entries = (many: number): string => `${count(many)} ${many === 1 ? "entry" : "entries"}`

/** Writes the entries of a part of a namespace as lines, with their values as they are stored. */
const exportLines = async (list: KeyList, signal: AbortSignal, onCount: (entries: number) => void): Promise<Blob> => {
  const parts: Array<Blob> = []
  let size = 0
  let read = 0
  for (let cursor: string | undefined, isMore = true; isMore; ) {
    const page = await listTexts(list.namespace, list.prefix, cursor, signal)
    const lines = page.items.map(
      ({ expiresAt, key, value }) => `{"key":${JSON.stringify(key)},"value":${value},"expiresAt":${expiresAt}}\n`
    )
    const part = new Blob(lines)
    size += part.size
    if (size > maxBytes) throw new Error(`The export is larger than ${bytes(maxBytes)}: use the command line for it`)
    parts.push(part)
    read += page.items.length
    onCount(read)
    cursor = page.cursor
    isMore = cursor !== undefined
  }
  return new Blob(parts, { type: "application/x-ndjson" })
}

export const Transfer = ({ list, onClose }: { readonly list: KeyList; readonly onClose: () => void }) => {
  const [progress, setProgress] = useState("")
  const [failure, setFailure] = useState("")
  const [isBusy, setBusy] = useState(false)
  const [existing, setExisting] = useState<Existing>("stop")
  const [file, setFile] = useState<File>()
  /** How many entries an import that is under way has written. */
  const [written, setWritten] = useState<number>()
  /** How many it had written when it was stopped. */
  const [stoppedAfter, setStoppedAfter] = useState<number>()
  const ended = useRef(new AbortController())
  useEffect(() => () => ended.current.abort(new DOMException("The dialog is closed", "AbortError")), [])

  const run = async (work: (signal: AbortSignal) => Promise<string>) => {
    setBusy(true)
    setFailure("")
    setProgress("")
    try {
      setProgress(await work(ended.current.signal))
    } catch (error) {
      if (!isAbort(error)) setFailure(messageOf(error))
    } finally {
      setBusy(false)
      setWritten(undefined)
    }
  }

  const exportAll = () =>
    run(async signal => {
      const blob = await exportLines(list, signal, read => setProgress(`${entries(read)} read…`))
      download(blob, `${list.namespace.replace(/[^\w.-]+/g, "-")}.ndjson`)
      return `Exported, ${bytes(blob.size)}.`
    })

  const importAll = (chosen: File) =>
    run(async signal => {
      setWritten(0)
      const { expired, skipped, written } = await importFile(
        chosen,
        list.namespace,
        existing,
        signal,
        ({ written }) => {
          setWritten(written)
          setProgress(`${entries(written)} written…`)
        }
      )
      const left =
        skipped === 0 ? "" : ` ${entries(skipped)} left out, as ${skipped === 1 ? "it was" : "they were"} there.`
      const over = expired === 0 ? "" : ` ${entries(expired)} left out, as expired.`
      return `Imported ${entries(written)}.${left}${over}`
    })

  const stop = (after: number) => {
    ended.current.abort(new DOMException("The dialog is closed", "AbortError"))
    setStoppedAfter(after)
  }

  if (stoppedAfter !== undefined) {
    return (
      <Dialog key="stopped" title="The import was stopped" onClose={onClose}>
        <div class="dialog-body">
          <p>
            {entries(stoppedAfter)} of the file {stoppedAfter === 1 ? "was" : "were"} written, and perhaps the batch of
            up to {bounds.lines} behind them. Nothing else was.
          </p>
        </div>
      </Dialog>
    )
  }

  return (
    <Dialog
      key="transfer"
      title="Import and export"
      onClose={() => (written === undefined ? onClose() : stop(written))}
    >
      <div class="dialog-body">
        <h3>Export</h3>
        <p class="muted">
          {list.prefix === "" ? "All entries of " : `Entries that start with ${list.prefix} in `}
          <code>{list.namespace}</code>, one on a line: <code>{'{"key":…,"value":…,"expiresAt":…}'}</code>. Entries that
          change meanwhile are exported as they are when their page is read.
        </p>
        <div class="actions">
          <button type="button" class="button" disabled={isBusy} onClick={() => void exportAll()}>
            <Icon name="down" /> Export
          </button>
        </div>
        {canWrite.value && (
          <>
            <h3>Import</h3>
            <p class="muted">
              Lines in the same form, written in batches of up to {bounds.lines}, each of which is written whole or not
              at all.
            </p>
            <input
              type="file"
              aria-label="File to import"
              accept=".ndjson,.jsonl,.json"
              onChange={event => setFile(event.currentTarget.files?.[0])}
            />
            <label class="field">
              Where an entry is there already
              <select value={existing} onChange={event => setExisting(event.currentTarget.value as Existing)}>
                <option value="stop">stop the import</option>
                <option value="skip">leave it as it is</option>
                <option value="replace">replace it</option>
              </select>
            </label>
            <div class="actions">
              <button
                type="button"
                class="button primary"
                disabled={isBusy || file === undefined}
                onClick={() => file && void importAll(file)}
              >
                <Icon name="up" /> Import
              </button>
            </div>
          </>
        )}
        <p class={failure === "" ? "note" : "note bad"} role="status">
          {failure === "" ? progress : `${failure} ${progress === "" ? "" : `(${progress})`}`}
        </p>
      </div>
    </Dialog>
  )
}
