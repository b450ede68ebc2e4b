/** A host on the platform's own server, in a separate process. It prints its port. */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Console, Effect } from "effect"
import { serve } from "./Host.ts"

NodeRuntime.runMain(
  Effect.scoped(
    Effect.zipRight(
      Effect.flatMap(serve("stock"), port => Console.log(`port=${port}`)),
      Effect.never
    )
  )
)
