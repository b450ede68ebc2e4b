/** The palette of commands, and the list of keys. */
import { signal } from "@preact/signals"
import { useEffect, useId, useState } from "preact/hooks"
import { isAbort, messageOf } from "../Service/Failure.ts"
import { FailureNote } from "../Widgets/Controls.tsx"
import { Dialog } from "../Widgets/Dialog.tsx"
import { useDebounced } from "../Widgets/Hooks.ts"
import { type Command, commandsOf, find, forget } from "./Commands.ts"

const shown = signal<"palette" | "keys" | undefined>(undefined)

interface PaletteProps {
  readonly pages: ReadonlyArray<{ readonly name: string; readonly title: string }>
  readonly onClose: () => void
}

const useFound = (text: string) => {
  const typed = useDebounced(text)
  const [found, setFound] = useState<{ readonly of: string; readonly commands: ReadonlyArray<Command> }>()
  const [problem, setProblem] = useState("")
  useEffect(() => {
    const ended = new AbortController()
    setProblem("")
    find(typed, ended.signal).then(
      commands => setFound({ of: typed, commands }),
      (error: unknown) => isAbort(error) || setProblem(messageOf(error))
    )
    return () => ended.abort()
  }, [typed])
  // What was found for an earlier text must not be run.
  return { found: found?.of === text ? found.commands : [], problem }
}

const Palette = ({ onClose, pages }: PaletteProps) => {
  const list = useId()
  const [text, setText] = useState("")
  const [chosen, setChosen] = useState(0)
  const { found, problem } = useFound(text)
  useEffect(() => forget, [])
  // What is found later comes last, so that the chosen command stays.
  const commands = [...commandsOf(text, pages), ...found]
  const index = Math.min(chosen, commands.length - 1)

  const run = (command: Command | undefined) => {
    if (command === undefined) return
    onClose()
    command.run()
  }
  useEffect(() => document.getElementById(`${list}-${index}`)?.scrollIntoView({ block: "nearest" }), [index])

  return (
    <Dialog title="Go to, copy, or change" onClose={onClose} onSubmit={() => run(commands[index])}>
      <input
        data-first
        class="palette-field"
        role="combobox"
        aria-label="Command"
        aria-expanded="true"
        aria-controls={list}
        aria-activedescendant={index < 0 ? undefined : `${list}-${index}`}
        autocomplete="off"
        spellcheck={false}
        placeholder="Namespace, key, session, page or command"
        value={text}
        onInput={event => {
          setText(event.currentTarget.value)
          setChosen(0)
        }}
        onKeyDown={event => {
          const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0
          if (step === 0 || commands.length === 0) return
          event.preventDefault()
          setChosen((index + step + commands.length) % commands.length)
        }}
      />
      <FailureNote text={problem} />
      <div id={list} class="palette-list" role="listbox" aria-label="Commands">
        {commands.map((command, at) => (
          <button
            type="button"
            id={`${list}-${at}`}
            role="option"
            tabIndex={-1}
            aria-selected={at === index}
            onClick={() => run(command)}
            onPointerMove={() => at === index || setChosen(at)}
          >
            <span class="palette-title" dir="auto">
              {command.title}
            </span>
            <span class="muted">{command.kind}</span>
          </button>
        ))}
      </div>
      {commands.length === 0 && <p class="muted">Nothing found.</p>}
    </Dialog>
  )
}

/** The keys, and what they do. */
const keys: ReadonlyArray<readonly [keys: string, what: string]> = [
  ["Ctrl K", "Open the palette: go to a namespace, key, session or page, copy, change colors"],
  ["?", "Show this list"],
  ["/", "Go to the search field of the store"],
  ["Tab", "Move between lists and fields"],
  ["↑ ↓ Home End", "Move within a list"],
  ["← →", "Select tabs; change the width of a pane at its edge"],
  ["Enter", "Open, or send a message"],
  ["Shift Enter", "A new line in a message"],
  ["Ctrl S", "Save the entry"],
  ["Escape", "Close a dialog"]
]

const KeyList = ({ onClose }: { readonly onClose: () => void }) => (
  <Dialog title="Keys" onClose={onClose}>
    <dl class="key-list">
      {keys.map(([pressed, what]) => (
        <>
          <dt>
            {pressed.split(" ").map(key => (
              <kbd>{key}</kbd>
            ))}
          </dt>
          <dd>{what}</dd>
        </>
      ))}
    </dl>
  </Dialog>
)

const isTyping = ({ target }: KeyboardEvent): boolean =>
  target instanceof HTMLElement && (target.isContentEditable || target.matches("input, textarea, select"))

const onKey = (event: KeyboardEvent): void => {
  const isPalette =
    (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k"
  if (isPalette) {
    event.preventDefault()
    // Within another dialog it would cover what that one asks.
    if (shown.value === "palette") shown.value = undefined
    else if (document.querySelector("dialog[open]") === null) shown.value = "palette"
    return
  }
  if (event.key !== "?" || event.ctrlKey || event.metaKey || event.altKey || isTyping(event)) return
  if (document.querySelector("dialog[open]") !== null) return
  event.preventDefault()
  shown.value = "keys"
}

/** Opens the palette. */
export const openPalette = (): void => {
  shown.value = "palette"
}

export const Palettes = ({ pages }: Pick<PaletteProps, "pages">) => {
  useEffect(() => {
    document.addEventListener("keydown", onKey)
    return () => document.removeEventListener("keydown", onKey)
  }, [])
  const close = () => {
    shown.value = undefined
  }
  if (shown.value === "palette") return <Palette pages={pages} onClose={close} />
  return shown.value === "keys" ? <KeyList onClose={close} /> : null
}
