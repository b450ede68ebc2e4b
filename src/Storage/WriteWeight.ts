import type { Write } from "../Kv/Write.ts"
import type { Weight } from "./GroupCommit.ts"

/** What a write weighs in a group: its operations, and about the bytes of its texts. */
export const weigh = ({ operations }: Write): Weight => {
  let bytes = 0
  for (const operation of operations) {
    bytes += 64 + operation.namespace.length + operation.key.length
    if (operation.op === "set") bytes += operation.value.length
  }
  return { operations: operations.length, bytes }
}
