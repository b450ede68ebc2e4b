import { Effect } from "effect"

/** What reads and verifies tokens, loaded with the first of them: many services never see one. */
export const load = Effect.promise(() => import("jose"))
