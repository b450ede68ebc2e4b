/** The members that a plain body may have. */
import { spell } from "./Codes.ts"

/** A member of a body or of an operation; its bit tells whether it was there. */
export interface Member {
  readonly name: string
  readonly kind: "value" | "text" | "number" | "operations"
  readonly index: number
  readonly bit: number
  readonly spelling: Uint8Array
}

const members = (kinds: Readonly<Record<string, Member["kind"]>>): ReadonlyArray<Member> =>
  Object.entries(kinds).map(([name, kind], index) => ({
    name,
    kind,
    index,
    bit: 1 << index,
    spelling: spell(`"${name}"`)
  }))

/** Those of a PUT and of a batch. */
export const inBody = members({
  value: "value",
  operations: "operations",
  actor: "text",
  ttlMs: "number",
  expiresAt: "number",
  ifVersion: "number"
})

/** Those of an operation of a batch. */
export const inOperation = members({
  op: "text",
  namespace: "text",
  key: "text",
  value: "value",
  ttlMs: "number",
  expiresAt: "number",
  ifVersion: "number"
})

/** The bits of an operation that sets and says no more. */
const plainSet = 0b1111

/** The object of the members that were seen. */
export const made = (known: ReadonlyArray<Member>, seen: number, found: ReadonlyArray<unknown>): object => {
  if (known === inOperation && seen === plainSet) {
    return { op: found[0], namespace: found[1], key: found[2], value: found[3] }
  }
  const object: Record<string, unknown> = {}
  for (const { bit, index, name } of known) if ((seen & bit) !== 0) object[name] = found[index]
  return object
}
