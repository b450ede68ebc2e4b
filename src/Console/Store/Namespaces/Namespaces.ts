/** Namespaces and tenants: lists of names that are read in pages, in view again after changes, and a search of them. */
import { computed, signal } from "@preact/signals"
import { useEffect, useMemo, useRef } from "preact/hooks"
import type { NamespaceCount, TenantCount } from "../../../Client/Client.ts"
import { compare } from "../../../Client/KeyOrder.ts"
import { namespacePage, tenantPage } from "../../../Client/Reads.ts"
import { requests } from "../../Service/Connection.ts"
import { isAbort, messageOf } from "../../Service/Failure.ts"
import { readEnd } from "../../Service/LogEnd.ts"
import { choices, choose } from "../../Service/Navigation.ts"
import { names } from "../../Service/Page.ts"
import { pause, retryUntilDone } from "../../Service/Pause.ts"
import { useDebounced } from "../../Widgets/Hooks.ts"

interface NamePage<A> {
  /** In byte order of their names. */
  readonly items: ReadonlyArray<A>
  /** The end of the log when the page was read. */
  readonly end: string
  /** The cursor of the next page; `undefined` on the last one. */
  readonly cursor: string | undefined
}

/** The maximum number of names in a list. The search finds the others. */
export const maxNames = 10_000

/** The start of a page. A page that is read again may start at another name than before. */
interface Start {
  /** The name before the page; `undefined` for the first page. */
  readonly after: string | undefined
  readonly cursor: string | undefined
  /** The end of the log when the page was last read; `undefined` before that. */
  readAt: string | undefined
}

/** The maximum number of pages that are read again together. A window has fewer rows than a page. */
const maxRefreshed = 3

/** An open list of names. It must be closed. */
export class NameList<A> {
  /** The known names, from the first one without gaps. */
  readonly items = signal<ReadonlyArray<A>>([])
  readonly isRead = signal(false)
  readonly isComplete = signal(false)
  readonly problem = signal("")
  readonly #ended = new AbortController()
  /** In order. If the last start has been read, the list is complete. */
  #starts: ReadonlyArray<Start> = [{ after: undefined, cursor: undefined, readAt: undefined }]
  #isBusy = false

  /** `readPage` reads the page at a cursor; the first page without it. */
  constructor(
    private readonly nameOf: (item: A) => string,
    private readonly readPage: (cursor: string | undefined, signal: AbortSignal) => Promise<NamePage<A>>
  ) {}

  close(): void {
    this.#ended.abort()
  }

  /** Reads the next page, unless a page is being read or the list has enough names. */
  loadMore(): Promise<void> {
    return this.#attempt(async () => {
      const start = this.#starts.at(-1)!
      if (start.readAt === undefined && this.items.value.length < maxNames) await this.#read(start)
    })
  }

  /** Reads the names in view again, unless they were read at this end of the log. */
  refresh(end: string, from: string | undefined, to: string | undefined): Promise<void> {
    return this.#attempt(async () => {
      let index = this.#starts.findLastIndex(({ after }) => isBefore(after, from))
      for (let pages = 0; pages < maxRefreshed; pages++) {
        const start = this.#starts[Math.max(0, index++)]
        if (start === undefined || (pages > 0 && !isBefore(start.after, to))) break
        if (start.readAt !== end) await this.#read(start)
      }
    })
  }

  /** Runs one piece of work at a time. While the service is unavailable, it is repeated. */
  async #attempt(work: () => Promise<void>): Promise<void> {
    const { signal } = this.#ended
    if (this.#isBusy || signal.aborted) return
    this.#isBusy = true
    const onProblem = (message: string) => {
      this.problem.value = message
    }
    await retryUntilDone(work, signal, onProblem).catch(error => isAbort(error) || onProblem(messageOf(error)))
    this.#isBusy = false
  }

  async #read(start: Start): Promise<void> {
    const { nameOf } = this
    const page = await this.readPage(start.cursor, this.#ended.signal)
    const last = page.items.at(-1)
    const isLast = page.cursor === undefined || last === undefined
    const known = this.items.value
    const before = start.after === undefined ? 0 : this.#indexAfter(start.after)
    const behind = isLast ? known.length : this.#indexAfter(nameOf(last))
    this.items.value = [...known.slice(0, before), ...page.items, ...known.slice(behind)]
    this.#replaceStarts(start, page, isLast ? undefined : nameOf(last))
    this.isRead.value = true
    this.isComplete.value = this.#starts.at(-1)!.readAt !== undefined
  }

  /** Replaces the starts up to `last` by the start of the next page, which follows `last`. */
  #replaceStarts(start: Start, page: NamePage<A>, last: string | undefined): void {
    const index = this.#starts.indexOf(start)
    const before = this.#starts.slice(0, index)
    const behind = this.#starts.slice(index + 1)
    const read = { ...start, readAt: page.end }
    if (last === undefined) {
      this.#starts = [...before, read]
      return
    }
    const passed = behind.filter(({ after }) => !isBefore(last, after))
    const next = { after: last, cursor: page.cursor, readAt: passed.at(-1)?.readAt }
    this.#starts = [...before, read, next, ...behind.slice(passed.length)]
  }

  #indexAfter(name: string): number {
    return this.items.value.findLastIndex(item => compare(this.nameOf(item), name) <= 0) + 1
  }
}

/** Whether a name comes before another one. `undefined` as the first name comes before all others. */
const isBefore = (name: string | undefined, other: string | undefined): boolean =>
  other !== undefined && (name === undefined || compare(name, other) < 0)

const useList = <A>(open: () => NameList<A> | undefined, inputs: ReadonlyArray<unknown>): NameList<A> | undefined => {
  const list = useMemo(open, inputs)
  useEffect(() => {
    void list?.loadMore()
    return () => list?.close()
  }, [list])
  return list
}

/** The end of a log as text. It differs after each change of the store. */
export const textOfEnd = ({ epoch, lastSeq }: { readonly epoch: string; readonly lastSeq: number }): string =>
  `${lastSeq}@${epoch}`

const intervalMs = 10_000

/** Polls the end of the log while the page is visible: if it has moved, lists may be outdated. */
const pollLogEnd = async (ended: AbortSignal, onEnd: (end: string) => void): Promise<void> => {
  for (;;) {
    await pause(intervalMs, ended)
    if (ended.aborted) return
    if (document.hidden) continue
    try {
      onEnd(textOfEnd(await readEnd(ended)))
    } catch {
      // The frame of the page reports it.
    }
  }
}

/** Searches names. If all are known, the caller filters them. Otherwise `open` lists those that start with the text. */
export const useSearch = <A>(part: unknown, text: string, open: (text: string) => NameList<A>) => {
  const all = useList(() => open(""), [part])!
  const typed = useDebounced(text)
  const isRemote = text !== "" && all.isRead.value && !all.isComplete.value
  const found = useList(() => (isRemote && typed !== "" ? open(typed) : undefined), [part, isRemote, typed])
  const list = found?.isRead.value ? found : all
  const nameAt = useRef<(index: number) => string | undefined>(() => undefined)
  const rows = useRef({ first: 0, last: -1 })
  useEffect(() => {
    const ended = new AbortController()
    void pollLogEnd(ended.signal, end => {
      const { first, last } = rows.current
      void list.refresh(end, nameAt.current(first), nameAt.current(last))
    })
    return () => ended.abort()
  }, [list])
  return {
    list,
    items: list.items.value,
    /** Whether the service searches, because not all names are known. It finds names that start with the text. */
    isRemote,
    isRead: all.isRead.value,
    problem: found?.problem.value || all.problem.value,
    /** Sets the rows in view and their names, so that they are kept up to date. */
    show: (nameOf: (index: number) => string | undefined) => {
      nameAt.current = nameOf
      return (first: number, last: number) => {
        rows.current = { first, last }
      }
    }
  }
}

export type Search<A> = ReturnType<typeof useSearch<A>>

export interface ListedNamespace {
  readonly namespace: string
  /** `undefined` for a namespace that the user has opened and that is not known to have entries. */
  readonly count: number | undefined
}

/** The tenant whose namespaces are shown, `""` for those without a tenant, `undefined` for all. */
export const chosenTenant = computed(() => choices.value.get("tenant") ?? undefined)
export const chooseTenant = (tenant: string | undefined): void => choose("tenant", tenant)

interface NamespacePart {
  /** The namespaces of one tenant, or without a tenant if `""`; all without it. */
  readonly tenant?: string | undefined
  readonly prefix: string
}

/** Opens a list of namespaces. It must be closed. */
export const listNamespaces = ({ prefix, tenant }: NamespacePart): NameList<NamespaceCount> =>
  new NameList(
    ({ namespace }) => namespace,
    async (cursor, signal) => {
      const part = tenant === undefined ? {} : tenant === "" ? { withoutTenant: true } : { tenant }
      const page = await namespacePage(requests.value, { prefix, ...part, signal }, cursor)
      return { items: page.namespaces, end: textOfEnd(page), cursor: page.cursor }
    }
  )

/** Opens a list of tenants whose IDs start with a text. It must be closed. */
export const listTenants = (prefix: string): NameList<TenantCount> =>
  new NameList(
    ({ tenant }) => tenant,
    async (cursor, signal) => {
      const page = await tenantPage(requests.value, { prefix, signal }, cursor)
      return { items: page.tenants, end: textOfEnd(page), cursor: page.cursor }
    }
  )

/** Splits `tenant:<tenant>/<rest>`. The tenant of other names is `""`. */
export const partsOf = (namespace: string): { readonly tenant: string; readonly rest: string | undefined } => {
  const [, tenant = "", rest] = /^tenant:([^/]*)(?:\/(.*))?$/s.exec(namespace) ?? []
  return { tenant, rest }
}

export const titleOf = (namespace: string, tenant: string | undefined): string =>
  tenant === undefined || tenant === "" ? namespace : partsOf(namespace).rest || namespace

/** The namespace that a text names in the list of a tenant: the whole name, or the part after the tenant. */
export const namespaceOf = (text: string, tenant: string | undefined): string =>
  tenant === undefined || tenant === "" || text === "" || partsOf(text).tenant === tenant
    ? text
    : `tenant:${tenant}/${text}`

/** The namespaces that were opened in this tab, latest first. */
export const remembered = signal<ReadonlyArray<string>>(JSON.parse(sessionStorage.getItem(names.namespaces) ?? "[]"))

export const remember = (namespace: string): void => {
  if (remembered.peek().includes(namespace)) return
  remembered.value = [namespace, ...remembered.peek()].slice(0, 50)
  sessionStorage.setItem(names.namespaces, JSON.stringify(remembered.peek()))
}
