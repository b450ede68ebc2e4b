/** Tabs. The Tab key moves to the selected tab and to its panel; the arrow keys, Home and End select a tab. */
import type { ComponentChildren } from "preact"
import { useId, useLayoutEffect, useRef } from "preact/hooks"
import { indexAfter, isAlone } from "./Keys.ts"

interface Props<Name extends string> {
  readonly label: string
  /** The titles by name, in order. */
  readonly titles: Readonly<Record<Name, string>>
  readonly chosen: Name
  readonly onChoose: (name: Name) => void
  /** Content next to the tabs. */
  readonly note?: ComponentChildren
  /** The panel of the selected tab. */
  readonly children: ComponentChildren
}

export const Tabs = <Name extends string>({ children, chosen, label, note, onChoose, titles }: Props<Name>) => {
  const id = useId()
  const list = useRef<HTMLDivElement>(null)
  const names = Object.keys(titles) as Array<Name>

  const tabs = () => list.current?.querySelectorAll<HTMLElement>('[role="tab"]') ?? []

  // If the focus was in the panel that was removed, it moves to the tab of the new one.
  const shown = useRef(chosen)
  useLayoutEffect(() => {
    if (shown.current !== chosen && document.activeElement === document.body) tabs()[names.indexOf(chosen)]?.focus()
    shown.current = chosen
  }, [chosen])

  const move = (event: KeyboardEvent) => {
    if (!isAlone(event)) return
    const order = { axis: "horizontal", wraps: true } as const
    const index = indexAfter(event.key, names.indexOf(chosen), names.length, order)
    if (index === undefined) return
    event.preventDefault()
    onChoose(names[index]!)
    tabs()[index]?.focus()
  }

  return (
    <>
      <div class="tabs">
        <div ref={list} role="tablist" aria-label={label} onKeyDown={move}>
          {names.map(name => (
            <button
              type="button"
              role="tab"
              id={`${id}-${name}`}
              aria-selected={name === chosen}
              aria-controls={name === chosen ? `${id}-panel` : undefined}
              tabIndex={name === chosen ? 0 : -1}
              onClick={() => onChoose(name)}
            >
              {titles[name]}
            </button>
          ))}
        </div>
        {note}
      </div>
      <div class="tab-panel" role="tabpanel" id={`${id}-panel`} aria-labelledby={`${id}-${chosen}`}>
        {children}
      </div>
    </>
  )
}
