/**
 * The idle connections of a server by their network, in the order in which they became idle.
 *
 * Each request makes its connection busy and idle again, so both take only a few assignments: the connections of a
 * network are a linked list. Networks are in a binary heap by the number of their connections. One without idle
 * connections is removed from the heap only when it reaches the top.
 */
import { type Linked, LinkedList } from "../../base/LinkedList.ts"
import * as IndexedArray from "./IndexedArray.ts"

/** A connection, and its neighbors among the idle ones of its network. */
export interface Idle<C extends Idle<C>> extends Linked<C> {
  readonly network: Network<C>
  isIdle: boolean
}

/** A remote network, and how many connections come from it. */
export interface Network<C extends Linked<C>> extends IndexedArray.Indexed {
  readonly name: string
  count: number
  /** Its idle connections, in the order in which they became idle. */
  readonly idle: LinkedList<C>
}

/** Finds the idle connection to close when there are too many connections. */
export class IdleConnections<C extends Idle<C>> {
  readonly #networks = new Map<string, Network<C>>()
  readonly #heap: Array<Network<C>> = []

  /** Counts another connection of a network. */
  join(name: string): Network<C> {
    let network = this.#networks.get(name)
    if (network === undefined) {
      network = { name, count: 0, idle: new LinkedList(), index: -1 }
      this.#networks.set(name, network)
    }
    network.count++
    if (network.index !== -1) this.#rise(network)
    return network
  }

  /** Undoes {@link join} for a closed connection. */
  leave(connection: C): void {
    const { network } = connection
    this.delete(connection)
    network.count--
    if (network.index !== -1) this.#sink(network)
    if (network.count > 0) return
    this.#networks.delete(network.name)
    if (network.index !== -1) this.#remove(network)
  }

  /** Adds a connection that has just become idle. */
  add(connection: C): void {
    if (connection.isIdle) return
    const { network } = connection
    connection.isIdle = true
    network.idle.add(connection)
    if (network.index === -1) this.#insert(network)
  }

  /** Removes a connection that has become busy. */
  delete(connection: C): void {
    if (!connection.isIdle) return
    connection.isIdle = false
    connection.network.idle.remove(connection)
  }

  /** The longest idle connection of the network with the most connections, among networks with an idle one. */
  first(): C | undefined {
    for (let largest = this.#heap[0]; largest !== undefined; largest = this.#heap[0]) {
      const { oldest } = largest.idle
      if (oldest !== undefined) return oldest
      this.#remove(largest)
    }
    return undefined
  }

  #insert(network: Network<C>): void {
    IndexedArray.append(this.#heap, network)
    this.#rise(network)
  }

  #remove(network: Network<C>): void {
    const { index } = network
    IndexedArray.remove(this.#heap, network)
    const moved = this.#heap[index]
    if (moved === undefined) return
    this.#rise(moved)
    this.#sink(moved)
  }

  #rise(network: Network<C>): void {
    while (network.index > 0) {
      const parent = this.#heap[(network.index - 1) >> 1]!
      if (parent.count >= network.count) return
      this.#swap(parent, network)
    }
  }

  #sink(network: Network<C>): void {
    for (;;) {
      const left = this.#heap[2 * network.index + 1]
      const right = this.#heap[2 * network.index + 2]
      const larger = right !== undefined && right.count > left!.count ? right : left
      if (larger === undefined || larger.count <= network.count) return
      this.#swap(network, larger)
    }
  }

  #swap(upper: Network<C>, lower: Network<C>): void {
    const { index } = upper
    upper.index = lower.index
    lower.index = index
    this.#heap[upper.index] = upper
    this.#heap[lower.index] = lower
  }
}
