import { type Context, Effect, FiberSet, type Scope } from "effect"
import type { Inference } from "../../Upstream/Inference.ts"
import { FairPool } from "../FairPool.ts"
import type { Entity } from "./Entity.ts"
import { mostOfOne } from "./Settings.ts"
import * as Title from "./Title.ts"

/** Titles that are made up at once, and that wait; sessions beyond keep the first words of their first message. */
const most = { atOnce: 4, waiting: 64 }

const maxTokens = 32

/** Makes titles up once a session's first turn is over. Where the proxy cannot, the first words stay. */
export const make = (
  inference: Context.Tag.Service<Inference>
): Effect.Effect<(entity: Entity) => void, never, Scope.Scope> =>
  Effect.gen(function* () {
    const run = yield* FiberSet.makeRuntime<never>()
    const pool = new FairPool({
      name: "titles",
      capacity: most.atOnce,
      mostOfOne: mostOfOne(most.atOnce),
      mostWaiting: most.waiting
    })

    const entitle = (entity: Entity, message: string) =>
      pool
        .use(entity.record.tenant, 1, () =>
          Effect.gen(function* () {
            const answer = yield* inference.generate({ prompt: Title.promptFor(message), maxTokens })
            const title = Title.fromAnswer(answer)
            if (title !== undefined && !entity.isDeleted) entity.amend({ title })
          })
        )
        .pipe(
          Effect.catchAll(error =>
            Effect.logDebug("A session keeps the title that it has").pipe(
              Effect.annotateLogs({ session: entity.key, reason: error.message })
            )
          )
        )

    return entity => {
      const { firstMessage } = entity
      entity.firstMessage = undefined
      entity.amend({ titled: true })
      if (firstMessage === undefined) return
      run(entity.use(entitle(entity, firstMessage)))
    }
  })
