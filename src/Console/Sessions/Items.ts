/** The items of a conversation. They are changed in place, because a session may have very many events. */

export interface UserMessage {
  readonly kind: "user"
  readonly text: string
  readonly by: string
}

/** A message or a thought of the agent. */
export interface AgentText {
  readonly kind: "text" | "thought"
  text: string
  isDone: boolean
}

export interface ToolCall {
  readonly kind: "tool"
  name: string
  /** The arguments as JSON text, as far as they were received. */
  args: string
  progress: string
  outcome: { readonly isError: boolean; readonly text: string } | undefined
}

/** A question or a request for approval. */
export interface Inquiry {
  readonly kind: "question" | "approval"
  readonly requestId: string
  readonly title: string
  readonly text: string
  readonly options: ReadonlyArray<unknown>
  /** The answer; `undefined` until it is given. */
  answer: string | undefined
}

export interface TerminalItem {
  readonly kind: "terminal"
  readonly command: string
  text: string
  exit: string | undefined
}

export interface Notice {
  readonly kind: "notice"
  readonly tone: "plain" | "good" | "warn" | "bad"
  readonly title: string
  readonly text: string
}

/** One item, with the `seq` and the timestamp of its first event. */
export type Item = { readonly seq: number; readonly at: number } & (
  | UserMessage
  | AgentText
  | ToolCall
  | Inquiry
  | TerminalItem
  | Notice
)

/** The number of characters in the long texts of an item. */
const charactersOf = (item: Item): number => {
  const text = "text" in item ? item.text.length : 0
  return item.kind === "tool" ? item.args.length + (item.outcome?.text.length ?? 0) : text
}

/** The maximum number of items, and of characters in all of them. The oldest items are removed first. */
export const maxItems = 20_000
export const maxCharacters = 32 * 1024 * 1024

/** The number of items and characters over the limits after which items are removed, as that visits all items. */
const slack = { items: 1000, characters: 4 * 1024 * 1024 }

/** The items of one conversation, oldest first. */
export class ItemList {
  readonly all: Array<Item> = []
  /** Items that later events may change, by kind and id. */
  readonly open = new Map<string, Item>()
  /** Characters that were added since items were removed. */
  #added = 0

  /** Adds an item, which is open if it has an id. */
  add(item: Item, id?: string): void {
    this.all.push(item)
    if (id !== undefined) this.open.set(id, item)
  }

  /** The open item of an id, if it is of the kind. */
  find<Kind extends Item["kind"]>(id: string, kind: Kind): Extract<Item, { readonly kind: Kind }> | undefined {
    const item = this.open.get(id)
    return item?.kind === kind ? (item as Extract<Item, { readonly kind: Kind }>) : undefined
  }

  /** Removes the oldest items if the limits are exceeded. `characters` is what the last event may have added. */
  limit(characters: number): void {
    this.#added += characters
    if (this.all.length <= maxItems + slack.items && this.#added <= slack.characters) return
    this.#added = 0
    let left = maxCharacters
    let first = this.all.length - 1
    while (first > 0 && this.all.length - first < maxItems) {
      left -= charactersOf(this.all[first]!)
      if (left < charactersOf(this.all[first - 1]!)) break
      first--
    }
    const kept = this.all[first]?.seq ?? 0
    this.all.splice(0, first)
    for (const [id, item] of this.open) if (item.seq < kept) this.open.delete(id)
  }
}
