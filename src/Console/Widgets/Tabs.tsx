/** Tabs, of which one is chosen. Tab goes to the chosen one and on to its panel; the arrow keys, Home and End choose. */
import type { ComponentChildren } from "preact"
import { useId, useLayoutEffect, useRef } from "preact/hooks"
import { isAlone, placeAfter } from "./Keys.ts"

interface Props<Name extends string> {
  readonly label: string
  /** The titles by name, in order. */
  readonly titles: Readonly<Record<Name, string>>
  readonly chosen: Name
  readonly onChoose: (name: Name) => void
  /** What stands beside the tabs. */
  readonly note?: ComponentChildren
  /** The panel of the chosen one. */
  readonly children: ComponentChildren
}

export const Tabs = <Name extends string>({ children, chosen, label, note, onChoose, titles }: Props<Name>) => {
  const id = useId()
  const list = useRef<HTMLDivElement>(null)
  const names = Object.keys(titles) as Array<Name>

  const tabs = () => list.current?.querySelectorAll<HTMLElement>('[role="tab"]') ?? []

  // Where the focus has gone with the panel that had it, it goes to the tab of the new one.
  const shown = useRef(chosen)
  useLayoutEffect(() => {
    if (shown.current !== chosen && document.activeElement === document.body) tabs()[names.indexOf(chosen)]?.focus()
    shown.current = chosen
  }, [chosen])

  const move = (event: KeyboardEvent) => {
    if (!isAlone(event)) return
    const order = { axis: "horizontal", wraps: true } as const
    const place = placeAfter(event.key, names.indexOf(chosen), names.length, order)
    if (place === undefined) return
    event.preventDefault()
    onChoose(names[place]!)
    tabs()[place]?.focus()
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
