/** Import and export of a namespace. */

import { useEffect, useRef, useState } from "preact/hooks"
import type { Existing, Imported } from "../../Client/EntryLines.ts"
import { isOfGateway } from "../../Gateway/Protocol/Namespaces.ts"
import { canWrite } from "../Service/Connection.ts"
import { messageOf } from "../Service/Failure.ts"
import { download } from "../Service/Page.ts"
import { Button } from "../Widgets/Controls.tsx"
import { Dialog } from "../Widgets/Dialog.tsx"
import { useAttempt, useGuard } from "../Widgets/Hooks.ts"
import { bytes, counted, visible } from "../Widgets/Text.ts"
import { bounds, exportLines, importFile } from "./EntryFile.ts"
import type { KeyList } from "./KeyList.ts"

const entries = (number: number): string => counted(number, "entry", "entries")

const summaryOf = ({ expired, skipped, written }: Imported): string =>
  [
    `Imported ${entries(written)}.`,
    ...(skipped === 0 ? [] : [`Skipped ${entries(skipped)} already present.`]),
    ...(expired === 0 ? [] : [`Skipped ${entries(expired)} already expired.`])
  ].join(" ")

type Props = { readonly list: KeyList; readonly onClose: () => void }

interface Stopped {
  readonly written: number
  /** Continues what has stopped it. */
  readonly onClose: () => void
}

const StoppedDialog = ({ onClose, written }: Stopped) => (
  <Dialog title="Import stopped" onClose={onClose}>
    <p>
      {entries(written)} of the file {written === 1 ? "was" : "were"} written. A batch of up to {bounds.lines} more may
      have been written.
    </p>
  </Dialog>
)

type ImportProps = { readonly isBusy: boolean; readonly onImport: (file: File, existing: Existing) => void }

const ImportForm = ({ isBusy, onImport }: ImportProps) => {
  const [existing, setExisting] = useState<Existing>("stop")
  const [file, setFile] = useState<File>()
  return (
    <>
      <h3>Import</h3>
      <p class="muted">Lines in the same format, written in atomic batches of up to {bounds.lines} entries.</p>
      <input
        type="file"
        aria-label="File to import"
        accept=".ndjson,.jsonl,.json"
        onChange={event => setFile(event.currentTarget.files?.[0])}
      />
      <label class="field">
        If an entry already exists
        <select value={existing} onChange={event => setExisting(event.currentTarget.value as Existing)}>
          <option value="stop">stop the import</option>
          <option value="skip">skip it</option>
          <option value="replace">replace it</option>
        </select>
      </label>
      <div class="actions">
        <Button
          text="Import"
          look="primary"
          icon="up"
          isDisabled={isBusy || file === undefined}
          onClick={() => file && onImport(file, existing)}
        />
      </div>
    </>
  )
}

export const Transfer = ({ list, onClose }: Props) => {
  const [progress, setProgress] = useState("")
  // The number changes while the dialog is open.
  const isEmpty = list.revision.value >= 0 && list.total === 0
  const { failure, isBusy, run: attempt } = useAttempt()
  const [written, setWritten] = useState<number>()
  const [stopped, setStopped] = useState<Stopped>()
  const ended = useRef(new AbortController())
  useEffect(() => () => ended.current.abort(), [])

  const stop = (after: number, onClose: () => void) => {
    ended.current.abort()
    setStopped({ written: after, onClose })
  }
  // Navigation such as the browser's Back stops the import as Escape does.
  useGuard(written !== undefined && stopped === undefined, leave =>
    stop(written ?? 0, () => {
      onClose()
      leave()
    })
  )

  const run = (work: (signal: AbortSignal) => Promise<string>) => {
    const report = async () => {
      setProgress("")
      setProgress(await work(ended.current.signal).finally(() => setWritten(undefined)))
    }
    void attempt(report, error => visible(messageOf(error)))
  }

  const exportAll = () =>
    run(async signal => {
      const { namespace, prefix } = list
      const blob = await exportLines(namespace, prefix, signal, read => setProgress(`${entries(read)} read…`))
      download(blob, `${namespace.replace(/[^\w.-]+/g, "-")}.ndjson`)
      return `Exported ${bytes(blob.size)}.`
    })

  const importAll = (file: File, existing: Existing) =>
    run(async signal => {
      setWritten(0)
      const onProgress = ({ written }: Imported) => {
        setWritten(written)
        setProgress(`${entries(written)} written…`)
      }
      return summaryOf(await importFile(file, list.namespace, existing, signal, onProgress))
    })

  if (stopped !== undefined) return <StoppedDialog {...stopped} />

  return (
    <Dialog title="Import and export" onClose={() => (written === undefined ? onClose() : stop(written, onClose))}>
      <h3>Export</h3>
      <p class="muted">
        {list.prefix === "" ? "All entries of " : `Entries that start with ${visible(list.prefix)} in `}
        <code>{visible(list.namespace)}</code>, one per line: <code>{'{"key":…,"value":…,"expiresAt":…}'}</code>.
        Concurrent changes may or may not be included.
      </p>
      <div class="actions">
        <Button text="Export" icon="down" isDisabled={isBusy || isEmpty} onClick={exportAll} />
        {isEmpty && <span class="muted">There is nothing to export.</span>}
      </div>
      {canWrite.value && !isOfGateway(list.namespace) && <ImportForm isBusy={isBusy} onImport={importAll} />}
      <p class={failure === "" ? "note" : "note bad"} role="status">
        {failure === "" ? progress : `${failure} ${progress === "" ? "" : `(${progress})`}`}
      </p>
    </Dialog>
  )
}
