/** The parts of a pane: its head, a field that filters its list, the foot of the list, and tabs. */
import type { ComponentChildren } from "preact"
import { useId, useLayoutEffect, useRef } from "preact/hooks"
import { Icon } from "./Controls.tsx"
import { Name } from "./Names.tsx"
import { visible } from "./Text.ts"

interface HeadProps {
  readonly title: string
  /** The tooltip of the title; the title itself without it. */
  readonly hint?: string
  readonly isName?: boolean
  /** The link back, for narrow windows, which show one pane. */
  readonly back: { readonly href: string; readonly label: string }
  readonly children?: ComponentChildren
}

export const PaneHead = ({ back, children, hint, isName = false, title }: HeadProps) => (
  <div class="pane-head">
    <a class="button quiet icon-only only-narrow" href={back.href} aria-label={back.label}>
      <Icon name="back" />
    </a>
    <h2
      class={isName ? "pane-title mono" : "pane-title"}
      title={hint ?? visible(title)}
      dir={isName ? undefined : "auto"}
    >
      {isName ? <Name text={title} /> : visible(title)}
    </h2>
    {children}
  </div>
)

/** The summary of a list, and whether it is updated live. */
export const ListFoot = ({ children, isLive }: { readonly isLive: boolean; readonly children: ComponentChildren }) => (
  <p class="pane-foot" role="status">
    <span>{children}</span>
    <span class={isLive ? "live" : "live off"}>{isLive ? "live" : "connecting"}</span>
  </p>
)

interface SearchProps {
  readonly label: string
  readonly placeholder: string
  readonly value: string
  readonly onInput: (text: string) => void
}

export const SearchField = ({ label, onInput, placeholder, value }: SearchProps) => (
  <div class="search">
    <Icon name="search" />
    <input
      type="search"
      aria-label={label}
      placeholder={placeholder}
      value={value}
      onInput={event => onInput(event.currentTarget.value)}
    />
  </div>
)

/** The direction of the elements, and whether the first one follows the last. */
type Order = { readonly axis: "horizontal" | "vertical"; readonly wraps: boolean }

const steps: Readonly<Record<Order["axis"], Readonly<Record<string, number>>>> = {
  horizontal: { ArrowLeft: -1, ArrowRight: 1 },
  vertical: { ArrowUp: -1, ArrowDown: 1 }
}

/** The index that a key moves to from `from`, of `count` elements; `undefined` if it does not move. */
export const indexAfter = (key: string, from: number, count: number, { axis, wraps }: Order): number | undefined => {
  if (count === 0) return undefined
  if (key === "Home") return 0
  if (key === "End") return count - 1
  const step = steps[axis][key]
  if (step === undefined) return undefined
  const next = from + step
  if (wraps) return (next + count) % count
  return next >= 0 && next < count ? next : undefined
}

/** Whether a key is pressed without modifiers. The browser handles the others. */
export const isAlone = ({ altKey, ctrlKey, metaKey, shiftKey }: KeyboardEvent): boolean =>
  !(altKey || ctrlKey || metaKey || shiftKey)

interface Props<Name extends string> {
  readonly label: string
  readonly titles: Readonly<Record<Name, string>>
  readonly chosen: Name
  readonly onChoose: (name: Name) => void
  readonly note?: ComponentChildren
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
