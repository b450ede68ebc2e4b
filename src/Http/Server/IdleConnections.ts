/**
 * The choice of the connection that is closed when there are too many: of the remote address that has most, the one that
 * has been idle for longest. So a client that opens many connections displaces its own.
 *
 * The idle connections of an address form a linked list, oldest first, as a connection becomes idle and busy with each
 * request.
 */

/** A connection. The fields belong to this module. */
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

/** The part of an address by which connections are counted: of IPv6 the first 64 bits, which one client commonly has. */
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

/** See the top of this file. */
export class IdleConnections<A extends Member> {
  readonly #holders = new Map<string, Holder>()
  #largest: Holder | undefined
  /** The count of the largest when it was found. */
  #found = 0
  #idle = 0

  /** Adds a new connection, which is idle. */
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

  /** The connection becomes idle. */
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

  /** The connection becomes busy. */
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

  /** The connection to close; none where all are busy. */
  displaced(): A | undefined {
    if (this.#idle === 0) return undefined
    // An approximate maximum is enough: to search all addresses each time would take long.
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
