/** The workspace of a session: its files, their iterations, and the changes between iterations. */
import { useLayoutEffect, useRef, useState } from "preact/hooks"
import type { FileContent, FileEntry, FileIteration, Sessions } from "../../Client/Client.ts"
import { Banner, Button, Icon, IconButton } from "../Widgets/Controls.tsx"
import { useDebounced, useWork } from "../Widgets/Hooks.ts"
import { bytes, time, visible } from "../Widgets/Text.ts"
import { RowList } from "../Widgets/VirtualList.tsx"
import { Diff, VisibleText } from "../Widgets/VisibleText.tsx"

interface Props {
  readonly id: string
  readonly sessions: Sessions
  readonly changed: ReadonlyMap<string, string>
  readonly changes: number
}

const depth = 8

/** Longer files are not shown. In characters. */
const maxShown = 200_000

const textOf = (content: FileContent | undefined): string => {
  if (content === undefined) return ""
  if (content.encoding === "base64") return "This is a binary file."
  return content.content.length > maxShown ? "This file is too large to be shown." : content.content
}

interface Opened {
  readonly iterations: ReadonlyArray<FileIteration>
  readonly shown: FileContent | undefined
  readonly before: FileContent | undefined
}

interface FileProps extends Omit<Props, "changed"> {
  readonly path: string
  readonly onClose: () => void
}

const FileView = ({ changes, id, onClose, path, sessions }: FileProps) => {
  const [chosen, setChosen] = useState<number>()
  const [opened, setOpened] = useState<Opened>()
  const [isDiff, setDiff] = useState(false)
  const [problem, setProblem] = useState("")
  const back = useRef<HTMLButtonElement>(null)
  // The row that had the focus has been removed.
  useLayoutEffect(() => back.current?.focus(), [])
  const read = async (signal: AbortSignal) => {
    const iterations = [...(await sessions.fileHistory(id, path, { signal }))]
    const at = iterations.findIndex(({ iteration }) => iteration === chosen)
    const index = at === -1 ? iterations.length - 1 : at
    const contentAt = async (iteration: FileIteration | undefined) =>
      iteration === undefined ? undefined : sessions.fileAtIteration(id, path, iteration.iteration, { signal })
    const [shown, before] = await Promise.all([contentAt(iterations[index]), contentAt(iterations[index - 1])])
    setOpened({ iterations, shown, before })
    setProblem("")
  }
  useWork(read, setProblem, [id, path, chosen, changes, sessions])

  const shown = opened?.shown
  return (
    <>
      <div class="pane-head">
        <IconButton buttonRef={back} icon="back" label="All files" onClick={onClose} />
        <h3 class="pane-title mono" title={visible(path)}>
          {visible(path)}
        </h3>
      </div>
      <Banner tone="bad" text={problem} />
      {opened !== undefined && (
        <>
          <div class="pane-actions">
            <select
              aria-label="Iteration"
              value={String(shown?.iteration ?? opened.iterations.at(-1)?.iteration ?? "")}
              onChange={event => setChosen(Number(event.currentTarget.value))}
            >
              {opened.iterations.toReversed().map(({ iteration, size, timestamp }) => (
                <option value={String(iteration)}>
                  Iteration {iteration}, {time(timestamp)}, {bytes(size)}
                </option>
              ))}
            </select>
            <Button text="Changes" look="small" isPressed={isDiff} onClick={() => setDiff(!isDiff)} />
          </div>
          {isDiff ? (
            <Diff
              left={textOf(opened.before)}
              right={textOf(shown)}
              leftTitle={opened.before === undefined ? "Before" : `Iteration ${opened.before.iteration ?? ""}`}
              rightTitle={`Iteration ${shown?.iteration ?? ""}`}
            />
          ) : (
            <pre class="file-text" tabIndex={0}>
              <VisibleText text={textOf(shown)} />
            </pre>
          )}
        </>
      )}
    </>
  )
}

interface FileRowProps {
  readonly file: FileEntry
  readonly change: string | undefined
  readonly isPresent: boolean
  readonly onOpen: (path: string) => void
}

const FileRow = ({ change, file: { path, size }, isPresent, onOpen }: FileRowProps) => (
  <button type="button" class="row" aria-current={isPresent ? "true" : undefined} onClick={() => onOpen(path)}>
    <Icon name="file" />
    <span class="row-title mono grow">{visible(path)}</span>
    {change !== undefined && <span class="badge info">{change}</span>}
    <span class="row-count">{size === undefined ? "" : bytes(size)}</span>
  </button>
)

export const FilesPanel = (props: Props) => {
  const { changed, id, sessions } = props
  // Many files may change at the same time.
  const changes = useDebounced(props.changes)
  const [files, setFiles] = useState<ReadonlyArray<FileEntry>>()
  const [problem, setProblem] = useState("")
  const [path, setPath] = useState<string>()
  const [closed, setClosed] = useState<string>()
  const read = async (signal: AbortSignal) => {
    const found = await sessions.listFiles(id, { depth, signal })
    setFiles(found.filter(({ type }) => type !== "directory"))
    setProblem("")
  }
  useWork(read, setProblem, [id, changes, sessions])

  const box = useRef<HTMLElement>(null)
  useLayoutEffect(() => {
    if (path === undefined && closed !== undefined) box.current?.querySelector<HTMLElement>('[role="list"]')?.focus()
  }, [path, closed])
  const close = () => {
    setClosed(path)
    setPath(undefined)
  }
  return (
    <section class="side" aria-label="Files" ref={box}>
      {path !== undefined ? (
        <FileView key={path} {...{ id, sessions, changes, path }} onClose={close} />
      ) : (
        <>
          <Banner tone="warn" text={problem} />
          <RowList
            label="Files of the workspace"
            isRead={files !== undefined}
            problem={problem}
            empty="The workspace is empty."
            count={files?.length ?? 0}
            rowHeight={34}
            revision={props.changes}
            keyOf={index => files?.[index]?.path ?? index}
            row={index => {
              const file = files?.[index]
              if (file === undefined) return null
              return (
                <FileRow
                  file={file}
                  change={changed.get(file.path)}
                  isPresent={file.path === closed}
                  onOpen={setPath}
                />
              )
            }}
          />
        </>
      )}
    </section>
  )
}
