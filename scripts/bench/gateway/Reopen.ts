/** How long it takes to open a session with a long history: all its events, or its conversation. */
import { Console, Effect, type Scope } from "effect"
import { encode, type RequestFrame } from "../../../src/Gateway/Protocol.ts"
import { SessionEvents } from "../../../src/Gateway/SessionEvents.ts"
import * as Sqlite from "../../../src/Storage/Sqlite/SessionEvents.ts"
import { BenchFailed } from "../BenchFailed.ts"
import { scratch } from "../Stores.ts"
import { connect, firstTenant, tokenOf } from "./Clients.ts"
import { launch } from "./Gateway.ts"
import * as Platform from "./Platform.ts"

/** One way of opening the session. */
export interface Reopened {
  readonly name: string
  /** From the request to the last frame, the median. */
  readonly millis: number
  readonly frames: number
  readonly bytes: number
}

/** Events of the session, in turns. */
const events = 20_000
const perTurn = 100

const rounds = 20

const bodiesOf = (turn: number): ReadonlyArray<object> => {
  const ids = { turnId: `t_${turn}`, messageId: `m_${turn}` }
  const delta = (index: number) => ({ type: "text_delta", ...ids, text: `The word ${index} of answer ${turn}. ` })
  return [
    { type: "turn_started", turnId: ids.turnId, content: `Question ${turn}`, sub: "bench" },
    { type: "text_start", ...ids },
    ...Array.from({ length: perTurn - 4 }, (_, index) => delta(index)),
    { type: "text_end", ...ids },
    { type: "turn_completed", turnId: ids.turnId }
  ]
}

/** Writes the history of a session while no gateway runs. */
const fill = (directory: string, sessionId: string) =>
  Effect.gen(function* () {
    const history = yield* SessionEvents
    const session = `${firstTenant}/${sessionId}`
    const { epoch } = yield* history.open(session, "e")
    const timestamp = Date.now()
    for (let after = 0; after < events; after += perTurn) {
      const texts = bodiesOf(after / perTurn).map((body, index) =>
        JSON.stringify({ ...body, sessionId, seq: after + index + 1, timestamp, traceId: "0".repeat(32) })
      )
      yield* history.append({ session, epoch, after, timestamp, texts, recoveryState: null })
    }
  }).pipe(
    Effect.provide(Sqlite.layer({ directory, writer: "inline", retention: { events, bytes: 2 ** 30 } })),
    Effect.mapError(error => new BenchFailed({ reason: String(error) }))
  )

interface Frame {
  readonly type: string
  readonly seq?: number
  readonly last?: boolean
  readonly session?: { readonly id: string }
}

/** Sends a request over a connection of its own. Returns the last frame of the answers, with their number and size. */
const ask = (
  url: string,
  token: string,
  request: RequestFrame,
  isLast: (frame: Frame) => boolean
): Effect.Effect<Omit<Reopened, "name"> & { readonly frame: Frame }, BenchFailed, Scope.Scope> =>
  Effect.flatMap(connect(url, token), socket =>
    Effect.async(resume => {
      const startedAt = performance.now()
      let frames = 0
      let bytes = 0
      socket.on("message", (data: Buffer) => {
        frames++
        bytes += data.length
        const frame: Frame = JSON.parse(String(data))
        if (!isLast(frame)) return
        socket.terminate()
        resume(Effect.succeed({ frame, frames, bytes, millis: performance.now() - startedAt }))
      })
      socket.send(encode(request))
    })
  )

/** Measures the opening of a session with a history of 20,000 events. */
export const run = Effect.gen(function* () {
  yield* Console.error(`a session of ${events} events that is opened …`)
  const platform = yield* Platform.make
  const directory = yield* scratch
  const token = yield* tokenOf(firstTenant)
  const started = launch({ AGENT_PLATFORM_URL: platform.url }, "one", { directory })
  const made = yield* Effect.scoped(
    Effect.flatMap(started, ({ url }) =>
      ask(url, token, { type: "create_session", id: "1", agentType: "bench" }, ({ type }) => type === "session_created")
    )
  )
  const sessionId = made.frame.session!.id
  yield* fill(directory, sessionId)
  const { url } = yield* started
  const subscribe = { type: "subscribe", id: "1", sessionId } as const
  const whole = ask(url, token, subscribe, ({ seq }) => seq === events)
  const folded = ask(url, token, { ...subscribe, fold: true }, ({ last }) => last === true)
  const median = (name: string, opening: typeof whole, times: number) =>
    Effect.map(Effect.replicateEffect(opening, times), (all): Reopened => {
      const [{ bytes, frames }] = all as [(typeof all)[number]]
      const sorted = all.map(({ millis }) => millis).sort((a, b) => a - b)
      return { name, frames, bytes, millis: sorted[Math.floor(sorted.length / 2)]! }
    })
  return yield* Effect.all([
    median("all events", whole, rounds),
    median("the conversation, without a checkpoint", folded, 1),
    // The first one is stored in the background.
    Effect.delay(median("the conversation, from a checkpoint", folded, rounds), "1 second")
  ])
}).pipe(Effect.scoped)
