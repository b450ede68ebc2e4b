/** Copies what is shown: its name, its link, or a command that reads it. */
import { useState } from "preact/hooks"
import type { Copy, Place } from "../Service/Copies.ts"
import { messageOf } from "../Service/Failure.ts"
import { routes } from "../Service/Page.ts"

export const place = (): Place => ({
  origin: location.origin,
  store: routes.store ?? "",
  page: `${location.origin}${location.pathname}`
})

const shownMs = 2000

export interface CopyProps {
  readonly copies: ReadonlyArray<Copy>
  /** Reads the value, which is copied as the others are. */
  readonly value?: () => string | Promise<string>
}

export const CopyMenu = ({ copies, value }: CopyProps) => {
  const [outcome, setOutcome] = useState("")
  const copy = async (name: string) => {
    try {
      await navigator.clipboard.writeText(
        name === "Value" && value !== undefined ? await value() : (copies.find(one => one.name === name)?.text ?? "")
      )
      setOutcome(`${name} copied`)
    } catch (error) {
      setOutcome(`Not copied: ${messageOf(error)}`)
    }
    setTimeout(() => setOutcome(""), shownMs)
  }
  return (
    <>
      <select
        class="copy-menu"
        aria-label="Copy"
        title="Copy"
        value=""
        onChange={event => {
          const { value: name } = event.currentTarget
          event.currentTarget.value = ""
          void copy(name)
        }}
      >
        <option value="" disabled hidden>
          {outcome === "" ? "Copy" : outcome}
        </option>
        {copies.map(({ name }) => (
          <option value={name}>{name}</option>
        ))}
        {value !== undefined && <option value="Value">Value</option>}
      </select>
      <span class="visually-hidden" role="status">
        {outcome}
      </span>
    </>
  )
}
