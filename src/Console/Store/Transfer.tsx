/** Import and export of a namespace, as lines of JSON (NDJSON). */
import { useEffect, useRef, useState } from "preact/hooks"
import { membersOf, problemOf } from "../Json/JsonText.ts"
import { canWrite } from "../Service/Connection.ts"
import { isAbort, messageOf } from "../Service/Failure.ts"
import { Dialog } from "../Widgets/Dialog.tsx"
import { download } from "../Widgets/Download.ts"
import { Icon } from "../Widgets/Icon.tsx"
import { bytes, count } from "../Widgets/Text.ts"
import { type Imported, listTexts, writeAll } from "./Entries.ts"
import type { KeyList } from "./KeyList.ts"

/** What a page can hold. More is for the command line. */
const mostBytes = 256 * 1024 * 1024

/** Entries and characters of a batch. */
const batch = { entries: 500, characters: 4 * 1024 * 1024 }

/** Writes the entries of a part of a namespace as lines, with their values as they are stored. */
const exportLines = async (list: KeyList, signal: AbortSignal, onCount: (entries: number) => void): Promise<Blob> => {
  const parts: Array<Blob> = []
  let size = 0
  let entries = 0
  for (let cursor: string | undefined, isMore = true; isMore; ) {
    const page = await listTexts(list.namespace, list.prefix, cursor, signal)
    const lines = page.items.map(
      ({ expiresAt, key, value }) => `{"key":${JSON.stringify(key)},"value":${value},"expiresAt":${expiresAt}}\n`
    )
    const part = new Blob(lines)
    size += part.size
    if (size > mostBytes) throw new Error(`The export is larger than ${bytes(mostBytes)}: use the command line for it`)
    parts.push(part)
    entries += page.items.length
    onCount(entries)
    cursor = page.cursor
    isMore = cursor !== undefined
  }
  return new Blob(parts, { type: "application/x-ndjson" })
}

/** An entry of a line. */
const importedOf = (line: string, number: number): Imported => {
  const wrong = (what: string) => new Error(`Line ${number}: ${what}`)
  const problem = problemOf(line)
  if (problem !== undefined) throw wrong(`column ${problem.offset + 1}: ${problem.message}`)
  if (!line.trimStart().startsWith("{")) throw wrong("it is no object with key and value")
  const members = membersOf(line)
  const key: unknown = JSON.parse(members.get("key") ?? "null")
  const value = members.get("value")
  const expiresAt: unknown = JSON.parse(members.get("expiresAt") ?? "null")
  if (typeof key !== "string" || value === undefined) throw wrong("an entry has a key, which is text, and a value")
  if (expiresAt !== null && typeof expiresAt !== "number") throw wrong("expiresAt is a time in milliseconds, or null")
  return { key, value, expiresAt }
}

/** The lines of a file, which is read piece by piece. */
async function* linesOf(file: File): AsyncGenerator<string> {
  let rest = ""
  const reader = file.stream().pipeThrough(new TextDecoderStream()).getReader()
  for (;;) {
    const { done, value } = await reader.read()
    if (done) break
    const lines = (rest + value).split("\n")
    rest = lines.pop() ?? ""
    yield* lines
  }
  if (rest !== "") yield rest
}

/** Reads a file and writes its entries in batches, each of which is written whole or not at all. */
const importFile = async (
  file: File,
  namespace: string,
  isNew: boolean,
  signal: AbortSignal,
  onCount: (entries: number) => void
): Promise<number> => {
  let waiting: Array<Imported> = []
  let characters = 0
  let written = 0
  let number = 0
  const flush = async () => {
    if (waiting.length === 0) return
    await writeAll(namespace, waiting, isNew, signal)
    written += waiting.length
    onCount(written)
    waiting = []
    characters = 0
  }
  for await (const line of linesOf(file)) {
    number++
    if (line.trim() === "") continue
    waiting.push(importedOf(line, number))
    characters += line.length
    if (waiting.length >= batch.entries || characters >= batch.characters) await flush()
  }
  await flush()
  return written
}

export const Transfer = ({ list, onClose }: { readonly list: KeyList; readonly onClose: () => void }) => {
  const [progress, setProgress] = useState("")
  const [failure, setFailure] = useState("")
  const [isBusy, setBusy] = useState(false)
  const [isNew, setNew] = useState(true)
  const [file, setFile] = useState<File>()
  const ended = useRef(new AbortController())
  useEffect(() => () => ended.current.abort(new DOMException("The dialog is closed", "AbortError")), [])

  const run = async (work: (signal: AbortSignal) => Promise<string>) => {
    setBusy(true)
    setFailure("")
    try {
      setProgress(await work(ended.current.signal))
    } catch (error) {
      if (!isAbort(error)) setFailure(messageOf(error))
    } finally {
      setBusy(false)
    }
  }

  const exportAll = () =>
    run(async signal => {
      const blob = await exportLines(list, signal, entries => setProgress(`${count(entries)} entries read…`))
      download(blob, `${list.namespace.replace(/[^\w.-]+/g, "-")}.ndjson`)
      return `Exported, ${bytes(blob.size)}.`
    })

  const importAll = (chosen: File) =>
    run(async signal => {
      const told = (entries: number) => setProgress(`${count(entries)} entries written…`)
      const written = await importFile(chosen, list.namespace, isNew, signal, told)
      return `Imported ${count(written)} entries.`
    })

  return (
    <Dialog title="Import and export" onClose={onClose}>
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
              Lines in the same form, written in batches of up to {batch.entries}, each of which is written whole or not
              at all.
            </p>
            <input
              type="file"
              aria-label="File to import"
              accept=".ndjson,.jsonl,.json"
              onChange={event => setFile(event.currentTarget.files?.[0])}
            />
            <label class="check">
              <input type="checkbox" checked={isNew} onChange={event => setNew(event.currentTarget.checked)} /> Stop
              where an entry exists already
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
