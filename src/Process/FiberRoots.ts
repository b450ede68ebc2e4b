/**
 * A linked list of the root fibers, in place of Effect's `Set`.
 *
 * With fibers that live as long as a request the set is rehashed often. Each rehash leaves a table behind that refers to
 * the fibers of that moment and to the next table. Once one table is in old space, it and its successors keep finished
 * requests alive until the next major collection. A node of the list is unlinked when its fiber ends and refers to
 * nothing then.
 */
import { type Fiber, Predicate } from "effect"
import { globalValue } from "effect/GlobalValue"

/** A fiber without a parent. */
export type Root = Fiber.RuntimeFiber<unknown, unknown>

/** A node of the circular list; the head has no fiber. */
class Node {
  previous: Node = this
  next: Node = this
  constructor(public fiber: Root | undefined) {}
}

/** The running root fibers, in order of their start. */
export class FiberRoots implements Iterable<Root> {
  readonly #head = new Node(undefined)

  /** Adds a fiber until it ends. */
  track(fiber: Root): void {
    const head = this.#head
    const node = new Node(fiber)
    const { previous } = head
    node.previous = previous
    node.next = head
    previous.next = node
    head.previous = node
    fiber.addObserver(() => {
      node.previous.next = node.next
      node.next.previous = node.previous
      node.previous = node
      node.next = node
      node.fiber = undefined
    })
  }

  /** Called by Effect's own observer of a fiber that ran before `install`; `track` has added another observer. */
  delete(_fiber: Root): void {}

  *[Symbol.iterator](): Iterator<Root> {
    // A copy, since a fiber that ends during the iteration is unlinked.
    const fibers: Array<Root> = []
    for (let node = this.#head.next; node.fiber !== undefined; node = node.next) fibers.push(node.fiber)
    yield* fibers
  }
}

/**
 * Replaces Effect's set of root fibers in the whole process, and returns whether it did. The set is not part of Effect's
 * interface: if it is not as expected, nothing is changed.
 */
export const install = (): boolean => {
  const scope = globalValue(Symbol.for("effect/FiberScope/Global"), (): unknown => undefined)
  if (!Predicate.hasProperty(scope, "roots") || !Predicate.hasProperty(scope, "add")) return false
  if (scope.roots instanceof FiberRoots) return true
  if (!(scope.roots instanceof Set) || !Predicate.isFunction(scope.add)) return false
  const roots = new FiberRoots()
  const running: Iterable<Root> = scope.roots
  for (const fiber of running) roots.track(fiber)
  Object.assign(scope, { roots, add: (_flags: unknown, fiber: Root) => roots.track(fiber) })
  return true
}
