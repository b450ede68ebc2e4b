import { FastCheck as fc } from "effect"
import { describe, expect, it } from "vitest"
import { type Linked, LinkedList } from "../../src/base/Intrusive.ts"

class Element implements Linked<Element> {
  previous: Element | undefined
  next: Element | undefined
}

/** The elements from one end to the other. */
const walk = (list: LinkedList<Element>, from: "oldest" | "newest"): ReadonlyArray<Element> => {
  const elements: Array<Element> = []
  for (let at = list[from]; at !== undefined; at = from === "oldest" ? at.next : at.previous) elements.push(at)
  return elements
}

describe("a linked list", () => {
  it("is an array of which elements are removed anywhere, from both ends", () => {
    fc.assert(
      fc.property(fc.array(fc.option(fc.nat(), { freq: 2, nil: undefined })), steps => {
        const list = new LinkedList<Element>()
        const array: Array<Element> = []
        for (const step of steps) {
          if (step === undefined || array.length === 0) {
            const element = new Element()
            list.add(element)
            array.push(element)
          } else {
            const [element] = array.splice(step % array.length, 1)
            list.remove(element!)
            expect([element!.previous, element!.next]).toEqual([undefined, undefined])
          }
          const forth = walk(list, "oldest")
          expect(forth.length === array.length && forth.every((element, index) => element === array[index])).toBe(true)
          const back = walk(list, "newest").toReversed()
          expect(back.length === array.length && back.every((element, index) => element === array[index])).toBe(true)
        }
      })
    )
  })
})
