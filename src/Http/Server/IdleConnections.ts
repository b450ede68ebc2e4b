/**
 * Which connection makes way when there are too many: of the remote address that has most, the one that has been idle
 * for longest. So whoever opens many connections displaces its own, and others keep theirs.
 *
 * The idle ones of an address are a linked list, oldest first, as a connection becomes idle and busy with each request.
 */

/** A connection as this knows it; the fields are this module's own. */
export interface Member {
  holder: Holder | undefined
  isIdle: boolean
  older: Member | undefined
  newer: Member | undefined
}

/** The connections of one remote address. */
export class Holder {
  count = 0
  oldest: Member | undefined
  newest: Member | undefined

  constructor(readonly address: string) {}
}

/**
 * The part of an address by which connections are counted: of IPv6 the first 64 bits, as one client commonly has all
 * addresses behind them.
 */
export const holderOf = (address: string | undefined): string => {
  if (address === undefined) return ""
  if (!address.includes(":")) return address
  if (address.startsWith("::ffff:") && address.includes(".")) return address.slice(7)
  const [head = "", tail] = address.split("%", 1)[0]!.split("::")
  const before = head === "" ? [] : head.split(":")
  const after = tail === undefined || tail === "" ? [] : tail.split(":")
  const zeros = tail === undefined ? 0 : 8 - before.length - after.length
  return [...before, ...Array.from({ length: zeros }, () => "0"), ...after].slice(0, 4).join(":")
}

/** See the head of this file. */
export class IdleConnections<A extends Member> {
  readonly #holders = new Map<string, Holder>()
  #largest: Holder | undefined
  /** The count by which the largest was found to be it. */
  #found = 0
  #idle = 0

  /** Takes in a new connection, which is idle. */
  add(member: A, address: string | undefined): void {
    const name = holderOf(address)
    let holder = this.#holders.get(name)
    if (holder === undefined) {
      holder = new Holder(name)
      this.#holders.set(name, holder)
    }
    holder.count++
    member.holder = holder
    if (this.#largest === undefined || holder.count > this.#found) {
      this.#largest = holder
      this.#found = holder.count
    }
    this.rest(member)
  }

  remove(member: A): void {
    const { holder } = member
    if (holder === undefined) return
    this.wake(member)
    member.holder = undefined
    if (--holder.count > 0) return
    this.#holders.delete(holder.address)
    if (this.#largest === holder) this.#look()
  }

  /** The connection has nothing to do. */
  rest(member: A): void {
    const { holder } = member
    if (holder === undefined || member.isIdle) return
    member.isIdle = true
    this.#idle++
    member.older = holder.newest
    if (holder.newest === undefined) holder.oldest = member
    else holder.newest.newer = member
    holder.newest = member
  }

  /** The connection has something to do. */
  wake(member: A): void {
    const { holder, newer, older } = member
    if (holder === undefined || !member.isIdle) return
    member.isIdle = false
    this.#idle--
    if (older === undefined) holder.oldest = newer
    else older.newer = newer
    if (newer === undefined) holder.newest = older
    else newer.older = older
    member.older = undefined
    member.newer = undefined
  }

  /** The connection that is to make way; none where all are busy. */
  displaced(): A | undefined {
    if (this.#idle === 0) return undefined
    // Which address has most need not be known exactly, and to look at all of them each time would take long.
    if (this.#largest === undefined || this.#largest.count < 0.9 * this.#found) this.#look()
    const oldest = this.#largest?.oldest ?? this.#largestWithIdle()
    return oldest as A | undefined
  }

  #look(): void {
    this.#largest = undefined
    this.#found = 0
    for (const holder of this.#holders.values()) {
      if (holder.count <= this.#found) continue
      this.#largest = holder
      this.#found = holder.count
    }
  }

  #largestWithIdle(): Member | undefined {
    let found: Holder | undefined
    for (const holder of this.#holders.values()) {
      if (holder.oldest !== undefined && holder.count > (found?.count ?? 0)) found = holder
    }
    return found?.oldest
  }
}
