/**
 * The items of a conversation, limited in number and size. Later events change open items, which are found by kind and
 * id. Items are changed in place, because a session may have very many events.
 */
import { charactersOf, type Item } from "./Item.ts"

/** The maximum number of items, and of characters in all of them. The oldest items are removed first. */
export const maxItems = 20_000
export const maxCharacters = 32 * 1024 * 1024

/** The number of items and characters over the limits after which items are removed, as that visits all items. */
const slack = { items: 1000, characters: 4 * 1024 * 1024 }

/** The items of one conversation, oldest first. */
export class ItemList {
  readonly #all: Array<Item> = []
  readonly #open = new Map<string, Item>()
  /** Characters that were added since items were removed. */
  #added = 0

  get all(): ReadonlyArray<Item> {
    return this.#all
  }

  /** Items that later events may change, by kind and id. */
  get open(): ReadonlyMap<string, Item> {
    return this.#open
  }

  /** Adds an item, which is open if it has an id. */
  add(item: Item, id?: string): void {
    this.#all.push(item)
    if (id !== undefined) this.#open.set(id, item)
  }

  /** The open item of an id, if it is of the kind. */
  find<Kind extends Item["kind"]>(id: string, kind: Kind): Extract<Item, { readonly kind: Kind }> | undefined {
    const item = this.#open.get(id)
    return item?.kind === kind ? (item as Extract<Item, { readonly kind: Kind }>) : undefined
  }

  close(id: string): void {
    this.#open.delete(id)
  }

  /** Removes the oldest items if the limits are exceeded. `characters` is what the last event may have added. */
  limit(characters: number): void {
    this.#added += characters
    if (this.#all.length <= maxItems + slack.items && this.#added <= slack.characters) return
    this.#added = 0
    let left = maxCharacters
    let first = this.#all.length - 1
    while (first > 0 && this.#all.length - first < maxItems) {
      left -= charactersOf(this.#all[first]!)
      if (left < charactersOf(this.#all[first - 1]!)) break
      first--
    }
    const kept = this.#all[first]?.seq ?? 0
    this.#all.splice(0, first)
    for (const [id, item] of this.#open) if (item.seq < kept) this.#open.delete(id)
  }
}
