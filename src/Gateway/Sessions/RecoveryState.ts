/**
 * The state of a session as it is stored to recover the session after a crash.
 */
import { Either, Schema } from "effect"
import type { ParseError } from "effect/ParseResult"
import { initial, type SessionState } from "./SessionState.ts"
import type { LifecycleState } from "./StateMachine.ts"

const InstanceFields = { key: Schema.String, instanceId: Schema.NullOr(Schema.String) }

/** In the member names of the first version. */
const RecoveryState = Schema.parseJson(
  Schema.Struct({
    lease: Schema.NullOr(Schema.Struct(InstanceFields)),
    /** Pending stops. Earlier versions stored instance ids alone. */
    debts: Schema.optionalWith(
      Schema.Array(Schema.Union(Schema.String, Schema.Struct({ ...InstanceFields, refusals: Schema.Int }))),
      { exact: true }
    ),
    /** Open turns, and whether their start was published. */
    turns: Schema.Array(Schema.Tuple(Schema.String, Schema.Literal("accepted", "started"))),
    request: Schema.optionalWith(
      Schema.Struct({
        agentType: Schema.String,
        deployment: Schema.optionalWith(Schema.Unknown, { exact: true }),
        environment: Schema.optionalWith(Schema.Record({ key: Schema.String, value: Schema.String }), { exact: true })
      }),
      { exact: true }
    )
  })
)

const encodeText = Schema.encodeSync(RecoveryState)
const decodeText = Schema.decodeUnknownEither(RecoveryState)

/** The part of the state that must outlive the process, as JSON text; null if there is nothing to recover. */
export const encode = ({ instance, pendingStops, turns, request }: SessionState): string | null =>
  instance === null && pendingStops.length === 0 && turns.open.size === 0
    ? null
    : encodeText({
        lease: instance,
        ...(pendingStops.length === 0 ? {} : { debts: pendingStops }),
        turns: [...turns.open].map(([id, status]) => [id, status === "accepted" ? status : "started"] as const),
        ...(request === undefined ? {} : { request })
      })

/** The stored state of a session whose gateway has ended. */
export const decode = (lifecycle: LifecycleState, stored: string | null): Either.Either<SessionState, ParseError> =>
  stored === null
    ? Either.right({ ...initial, lifecycle })
    : Either.map(decodeText(stored), ({ lease, debts = [], turns, request }) => ({
        lifecycle,
        instance: lease,
        pendingStops: debts.map(stop =>
          typeof stop === "string" ? { key: stop, instanceId: stop, refusals: 0 } : stop
        ),
        turns: { open: new Map(turns), ended: initial.turns.ended },
        ...(request === undefined ? {} : { request })
      }))
