import type { Case } from "../Case.ts"
import { get, getHot, put } from "./Entries.ts"
import { fanOut } from "./FanOut.ts"
import { idleFollowers } from "./IdleFollowers.ts"
import { growth, memory, startUp } from "./LargeStore.ts"
import { lightFanOut } from "./LightFanOut.ts"
import { batch, changes, changesAnywhere, list } from "./Many.ts"

/** All cases, in the order in which they run. */
export const all: ReadonlyArray<Case> = [
  get,
  getHot,
  put,
  batch,
  changes,
  changesAnywhere,
  list,
  fanOut,
  lightFanOut,
  idleFollowers,
  startUp,
  memory,
  growth
]
