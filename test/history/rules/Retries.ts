/** All answers to a write that is repeated with its `Idempotency-Key` are the same. */
import { answers, type Write } from "../Operations.ts"
import { of, text, type Violation } from "../Violation.ts"
import type { Epoch } from "./Epochs.ts"

export const check = (writes: ReadonlyArray<Write>, epoch: Epoch): ReadonlyArray<Violation> =>
  writes.flatMap((write): ReadonlyArray<Violation> => {
    if (write.tries.length === 1) return []
    const [first, ...others] = answers(write).filter(({ one }) => epoch.has(one))
    if (first === undefined) return []
    return others
      .filter(({ result }) => JSON.stringify(result) !== JSON.stringify(first.result))
      .map(({ one, result }) => ({
        ...of("retry", write, `was answered ${text(first.result)}, and ${text(result)} when it was repeated`),
        operations: [write.id, one.id]
      }))
  })
