/** Creates an entry. */
import { useId, useState } from "preact/hooks"
import { PreconditionFailed } from "../../Client/Client.ts"
import { type Problem, problemOf } from "../JsonText.ts"
import { messageOf } from "../Service/Failure.ts"
import { go } from "../Service/Navigation.ts"
import { Button, FailureNote } from "../Widgets/Controls.tsx"
import { Confirm, Dialog } from "../Widgets/Dialog.tsx"
import { useAttempt, useGuard } from "../Widgets/Hooks.ts"
import { JsonEditor } from "../Widgets/JsonEditor.tsx"
import { isolated, visible } from "../Widgets/Text.ts"
import { writeText } from "./Entries.ts"
import { kept, writtenOf } from "./OpenEntry.ts"
import { ExpiryField } from "./ValueTab.tsx"

const initial = "{}"

/** Whether to discard what was typed, which is asked before the form is closed or the view is left. */
const useQuestion = (isTyped: boolean, onClose: () => void) => {
  const [leaving, setLeaving] = useState<{ readonly leave: () => void }>()
  const ask = (leave: () => void) => setLeaving({ leave })
  useGuard(isTyped, leave =>
    ask(() => {
      onClose()
      leave()
    })
  )
  return {
    isAsked: leaving !== undefined,
    ask: () => (isTyped ? ask(onClose) : onClose()),
    leave: () => leaving?.leave(),
    stay: () => setLeaving(undefined)
  }
}

const KeyField = (props: { readonly text: string; readonly onInput: (typed: string) => void }) => {
  const field = useId()
  return (
    <div class="field">
      <label for={field}>Key</label>
      <input
        id={field}
        data-first
        class="mono"
        autocomplete="off"
        spellcheck={false}
        value={props.text}
        onInput={event => props.onInput(event.currentTarget.value)}
      />
    </div>
  )
}

interface Props {
  readonly namespace: string
  /** The key that the field has at first. */
  readonly initialKey?: string
  readonly onClose: () => void
}

export const NewEntry = ({ initialKey = "", namespace, onClose }: Props) => {
  const [key, setKey] = useState(initialKey)
  const [text, setText] = useState(initial)
  const [expiry, setExpiry] = useState(kept)
  const [problem, setProblem] = useState<Problem>()
  const { failure, clearFailure, isBusy, run } = useAttempt()
  const { ask, isAsked, leave, stay } = useQuestion(
    key !== initialKey || text !== initial || expiry.kind !== "kept",
    onClose
  )

  const save = async () => {
    const found = problemOf(text)
    setProblem(found)
    if (found !== undefined) return
    await writeText(namespace, key, text, 0, writtenOf(expiry, null))
    onClose()
    go("store", namespace, key)
  }

  const trySave = () =>
    run(save, error =>
      error instanceof PreconditionFailed
        ? `The entry ${isolated(key)} already exists. To change it, select it in the list.`
        : messageOf(error)
    )

  if (isAsked) {
    return (
      <Confirm title="Discard the new entry?" action="Discard" onClose={stay} onConfirm={leave}>
        {key === "" ? "It" : <code>{visible(key)}</code>} has not been created.
      </Confirm>
    )
  }
  return (
    <Dialog title={`New entry in ${isolated(namespace)}`} isWide onClose={ask} onSubmit={() => void trySave()}>
      <KeyField
        text={key}
        onInput={typed => {
          setKey(typed)
          clearFailure()
        }}
      />
      <span class="field-title" aria-hidden="true">
        Value (JSON)
      </span>
      <JsonEditor
        label="Value"
        text={text}
        problem={problem}
        onInput={typed => {
          setText(typed)
          setProblem(undefined)
        }}
        onSave={() => void trySave()}
      />
      <ExpiryField expiry={expiry} stored={null} onChange={setExpiry} />
      <FailureNote text={failure} />
      <div class="actions">
        <Button text="Create" look="primary" isDisabled={key === "" || isBusy} />
        <Button text="Cancel" onClick={ask} />
      </div>
    </Dialog>
  )
}
