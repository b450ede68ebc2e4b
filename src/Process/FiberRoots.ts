/**
 * A cheaper list of the root fibers than Effect's own.
 *
 * Effect keeps every running root fiber in a `Set`. With fibers that live for a request the set is rehashed all the
 * time; each rehash leaves a table behind that refers to the fibers of that moment and to the table after it. Once one
 * of them is in old space, it and all that follow keep finished requests alive until old space is collected. Here a
 * fiber that ends is taken out of a ring, and what stood for it there refers to nothing any more.
 */
import { type Fiber, Predicate } from "effect"
import { globalValue } from "effect/GlobalValue"

/** A fiber that no other fiber has as its child. */
export type Root = Fiber.RuntimeFiber<unknown, unknown>

/** A place in the ring; one without a fiber is its head. */
class Place {
  previous: Place = this
  next: Place = this
  constructor(public fiber: Root | undefined) {}
}

/** The running root fibers, the newest last. */
export class FiberRoots implements Iterable<Root> {
  readonly #head = new Place(undefined)

  /** Lists the fiber until it ends. */
  track(fiber: Root): void {
    const head = this.#head
    const place = new Place(fiber)
    const { previous } = head
    place.previous = previous
    place.next = head
    previous.next = place
    head.previous = place
    fiber.addObserver(() => {
      place.previous.next = place.next
      place.next.previous = place.previous
      place.previous = place
      place.next = place
      place.fiber = undefined
    })
  }

  /** What Effect's observer of a fiber calls that was running before the list was: it has one of ours as well. */
  delete(_fiber: Root): void {}

  *[Symbol.iterator](): Iterator<Root> {
    // A fiber that ends meanwhile leaves its place without a next one.
    const fibers: Array<Root> = []
    for (let place = this.#head.next; place.fiber !== undefined; place = place.next) fibers.push(place.fiber)
    yield* fibers
  }
}

/**
 * Has Effect list its root fibers here, in the whole process, and says whether it does so. Where Effect keeps them is
 * no part of its interface: if it looks different from what is expected, all stays as it is.
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
