/** Lists of names that are searched. */
import { useEffect, useMemo, useRef } from "preact/hooks"
import { useRested } from "../Widgets/Rested.ts"
import type { NameList } from "./NameList.ts"
import { watchEnd } from "./Namespaces.ts"

export interface Search<A> {
  /** What is listed: all that is known, or what the service has found. */
  readonly list: NameList<A>
  readonly items: ReadonlyArray<A>
  /** Whether the service is asked for names that start with the text, as not all of them are known. */
  readonly isAsked: boolean
  /** Whether anything is known, and why not if it should be. */
  readonly isRead: boolean
  readonly problem: string
  /** Tells which rows are in view, so that they are kept up to date, and what their names are. */
  readonly show: (nameOf: (index: number) => string | undefined) => (first: number, last: number) => void
}

/** A list, which is closed when it is no longer shown. */
const useList = <A>(open: () => NameList<A> | undefined, inputs: ReadonlyArray<unknown>): NameList<A> | undefined => {
  const list = useMemo(open, inputs)
  useEffect(() => {
    void list?.loadMore()
    return () => list?.close()
  }, [list])
  return list
}

/**
 * The names of a part of the store, and those of them that fit a text. While all are known, the service is not asked for
 * those that fit. `open` lists those that start with a text.
 */
export const useSearch = <A>(part: unknown, text: string, open: (text: string) => NameList<A>): Search<A> => {
  const all = useList(() => open(""), [part])!
  const typed = useRested(text)
  const isAsked = text !== "" && all.isRead.value && !all.isComplete.value
  const found = useList(() => (isAsked && typed !== "" ? open(typed) : undefined), [part, isAsked, typed])
  const list = found?.isRead.value ? found : all
  const nameAt = useRef<(index: number) => string | undefined>(() => undefined)
  const rows = useRef({ first: 0, last: -1 })
  useEffect(() => {
    const ended = new AbortController()
    void watchEnd(ended.signal, end => {
      const { first, last } = rows.current
      void list.refresh(end, nameAt.current(first), nameAt.current(last))
    })
    return () => ended.abort()
  }, [list])
  return {
    list,
    items: list.items.value,
    isAsked,
    isRead: all.isRead.value,
    problem: found?.problem.value || all.problem.value,
    show: nameOf => {
      nameAt.current = nameOf
      return (first, last) => {
        rows.current = { first, last }
      }
    }
  }
}
