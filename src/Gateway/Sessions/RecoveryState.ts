/**
 * The state of a session as it is stored to recover the session after a crash.
 */
import { Either, Schema } from "effect"
import type { ParseError } from "effect/ParseResult"
import { initial, type SessionState } from "./SessionState.ts"
import type { LifecycleState } from "./StateMachine.ts"

const InstanceFields = { key: Schema.String, instanceId: Schema.NullOr(Schema.String) }

const RecoveryState = Schema.parseJson(
  Schema.Struct({
    instance: Schema.NullOr(Schema.Struct(InstanceFields)),
    pendingStops: Schema.optionalWith(Schema.Array(Schema.Struct({ ...InstanceFields, refusals: Schema.Int })), {
      exact: true
    }),
    /** The ids of open turns, oldest first. */
    turns: Schema.Array(Schema.String),
    request: Schema.optionalWith(Schema.Struct({ agentType: Schema.String }), { exact: true })
  })
)

const encodeText = Schema.encodeSync(RecoveryState)
const decodeText = Schema.decodeUnknownEither(RecoveryState)

/** The part of the state that must outlive the process, as JSON text; null if there is nothing to recover. */
export const encode = ({ instance, pendingStops, turns, request }: SessionState): string | null =>
  instance === null && pendingStops.length === 0 && turns.open.size === 0
    ? null
    : encodeText({
        instance,
        ...(pendingStops.length === 0 ? {} : { pendingStops }),
        turns: [...turns.open.keys()],
        ...(request === undefined ? {} : { request })
      })

/** The stored state of a session whose gateway has ended. */
export const decode = (lifecycle: LifecycleState, stored: string | null): Either.Either<SessionState, ParseError> =>
  stored === null
    ? Either.right({ ...initial, lifecycle })
    : Either.map(decodeText(stored), ({ instance, pendingStops = [], request, turns }) => ({
        ...{ lifecycle, instance, pendingStops },
        turns: { open: new Map(turns.map(id => [id, "started"] as const)), ended: initial.turns.ended },
        ...(request === undefined ? {} : { request })
      }))
