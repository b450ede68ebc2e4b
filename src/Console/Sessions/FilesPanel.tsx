/** The workspace of a session: its files, their iterations, and the changes between iterations. */
import { useLayoutEffect, useRef, useState } from "preact/hooks"
import type { FileContent, FileEntry, FileIteration, Sessions } from "../../Client/Client.ts"
import { Button, IconButton } from "../Widgets/Button.tsx"
import { Diff } from "../Widgets/Diff.tsx"
import { useDebounced, useWork } from "../Widgets/Hooks.ts"
import { Icon } from "../Widgets/Icon.tsx"
import { Banner } from "../Widgets/Messages.tsx"
import { bytes, time, visible } from "../Widgets/Text.ts"
import { RowList } from "../Widgets/VirtualList.tsx"
import { VisibleText } from "../Widgets/VisibleText.tsx"

interface Props {
  readonly id: string
  readonly sessions: Sessions
  /** The last change of each file, by path. */
  readonly changed: ReadonlyMap<string, string>
  /** Increases with each change of a file. */
  readonly changes: number
}

/** The number of directory levels in the list. */
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
        <div class="pane-actions">
          <select
            aria-label="Iteration"
            value={String(shown?.iteration ?? opened.iterations.at(-1)?.iteration ?? "")}
            onChange={event => setChosen(Number(event.currentTarget.value))}
          >
            {opened.iterations
              .map(({ iteration, size, timestamp }) => (
                <option value={String(iteration)}>
                  Iteration {iteration}, {time(timestamp)}, {bytes(size)}
                </option>
              ))
              .reverse()}
          </select>
          <Button text="Changes" look="small" isPressed={isDiff} onClick={() => setDiff(!isDiff)} />
        </div>
      )}
      {opened !== undefined &&
        (isDiff ? (
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
        ))}
    </>
  )
}

export const FilesPanel = (props: Props) => {
  const { changed, id, sessions } = props
  // Many files may change at the same time.
  const changes = useDebounced(props.changes)
  const [files, setFiles] = useState<ReadonlyArray<FileEntry>>()
  const [problem, setProblem] = useState("")
  const [path, setPath] = useState<string>()
  /** The file that was closed last. */
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

  if (path !== undefined) {
    return (
      <section class="side" aria-label="Files">
        <FileView
          key={path}
          id={id}
          sessions={sessions}
          changes={changes}
          path={path}
          onClose={() => {
            setClosed(path)
            setPath(undefined)
          }}
        />
      </section>
    )
  }
  return (
    <section class="side" aria-label="Files" ref={box}>
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
          return (
            file && (
              <button
                type="button"
                class="row"
                aria-current={file.path === closed ? "true" : undefined}
                onClick={() => setPath(file.path)}
              >
                <Icon name="file" />
                <span class="row-title mono grow">{visible(file.path)}</span>
                {changed.has(file.path) && <span class="badge info">{changed.get(file.path)}</span>}
                <span class="row-count">{file.size === undefined ? "" : bytes(file.size)}</span>
              </button>
            )
          )
        }}
      />
    </section>
  )
}
