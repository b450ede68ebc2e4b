/** The agents of the simulator without a network: an agent platform in memory, for tests of code that uses the port. */
import {
  Chunk,
  type Context,
  type Duration,
  Effect,
  Either,
  Exit,
  Layer,
  Mailbox,
  Option,
  type Scope,
  SubscriptionRef
} from "effect"
import { toSegment } from "../../Upstream/AgentPlatform/FileCalls.ts"
import {
  AgentPlatform,
  AgentPlatformConnectionError,
  type ConnectionState,
  type InstanceConnection,
  InvalidFileRequest,
  type Received
} from "../../Upstream/AgentPlatform.ts"
import { fromFrame } from "../../Upstream/PlatformEvent.ts"
import { Changes } from "../Changes.ts"
import type { Instance } from "../Instance.ts"
import { defaultLimits, type Limits } from "../Options.ts"
import { Instances } from "../Platform.ts"

/** What the agents do. */
export interface Options {
  /** Time between two events of a turn; none by default. */
  readonly pace?: Duration.DurationInput
  readonly limits?: Partial<Limits>
}

type Service = Context.Tag.Service<AgentPlatform>

const refused = (operation: string, statusCode: number, message: string): AgentPlatformConnectionError =>
  new AgentPlatformConnectionError({ operation, reason: "status", statusCode, isInDoubt: false, message })

const waitingEvents = 64

/** A connection to an instance, from the event after `after` on. It ends with the instance. */
const connectTo = (
  instance: Instance,
  after: string | undefined
): Effect.Effect<InstanceConnection<AgentPlatformConnectionError>, never, Scope.Scope> =>
  Effect.gen(function* () {
    const queue = yield* Mailbox.make<Received, AgentPlatformConnectionError>(waitingEvents)
    const state = yield* SubscriptionRef.make<ConnectionState>("connected")
    const { changes, history } = instance
    const connection = {
      sent: history.numberAfter(after ?? null) - 1,
      // No network can break, so the connection continues at its position.
      close: () => instance.attach(connection)
    }
    yield* Effect.acquireRelease(
      Effect.sync(() => instance.attach(connection)),
      () =>
        Effect.zipRight(
          Effect.sync(() => {
            instance.detach(connection)
            queue.unsafeDone(Exit.void)
          }),
          SubscriptionRef.set(state, "closed")
        )
    )
    const isGone = () => connection.sent >= history.last || instance.end === "reclaimed"
    const feed = Effect.gen(function* () {
      for (;;) {
        yield* changes.until(() =>
          instance.end !== undefined || history.last > connection.sent ? Option.some(undefined) : Option.none()
        )
        if (isGone()) return
        const frame = history.get(++connection.sent)
        changes.notify()
        const event = typeof frame === "string" ? fromFrame(frame) : Either.left("is no text")
        if (Either.isLeft(event)) continue
        yield* queue.offer(event.right)
      }
    })
    const ended = Effect.zipRight(
      Effect.sync(() => queue.unsafeDone(Exit.void)),
      SubscriptionRef.set(state, "closed")
    )
    yield* Effect.forkScoped(Effect.interruptible(Effect.zipRight(feed, ended)))

    const alive = Effect.suspend(() =>
      instance.end === undefined ? Effect.void : refused("connect", 404, `The instance ${instance.id} is gone`)
    )
    return {
      send: (frame, { claim } = {}) =>
        Effect.map(alive, () => {
          if (claim?.() === false) return
          if (frame.type === "message") instance.message(frame.content, frame.turnId)
          else if (frame.type === "interrupt") instance.interrupt(frame.turnId)
          else instance.answer(frame.requestId, frame.answer)
        }),
      ready: alive,
      take: Effect.map(queue.takeAll, ([values, isDone]) => [Chunk.toReadonlyArray(values), isDone] as const),
      states: state.changes
    }
  })

/** A platform whose instances live in the scope. */
export const make = ({ limits, pace = 0 }: Options = {}): Effect.Effect<Service, never, Scope.Scope> =>
  Effect.gen(function* () {
    const bounds = { ...defaultLimits, ...limits }
    const instances = yield* Instances.make(bounds, pace, new Changes())

    const find = (operation: string, id: string) =>
      Effect.suspend(() => {
        const instance = instances.alive.get(id)
        return instance === undefined ? refused(operation, 404, `There is no instance ${id}`) : Effect.succeed(instance)
      })
    const inWorkspace = <A>(
      operation: string,
      id: string,
      path: string | undefined,
      look: (instance: Instance) => A | undefined
    ) =>
      Effect.gen(function* () {
        if (path !== undefined) yield* toSegment(path)
        const found = look(yield* find(operation, id))
        return found === undefined ? yield* refused(operation, 404, `There is no ${path}`) : found
      })

    return {
      create: ({ agentType, deployment, environment, idempotencyKey, secrets }) =>
        Effect.suspend(() => {
          const creation = { agentType, deployment, environment, secretNames: Object.keys(secrets) }
          const started = instances.start(creation, idempotencyKey, "instance-")
          if (started === undefined) return refused("create", 429, `${bounds.instances} instances are alive already`)
          return Effect.succeed(typeof started === "string" ? started : started.id)
        }),
      stop: id => Effect.sync(() => void instances.end(id, "stopped")),
      connect: (id, { after } = {}) => Effect.flatMap(find("connect", id), instance => connectTo(instance, after)),
      listFiles: (id, { path = ".", depth = 1 } = {}) => {
        if (!Number.isInteger(depth) || depth < 1) {
          return new InvalidFileRequest({ message: "depth must be a whole number from 1 on" })
        }
        const directory = path === "." ? undefined : path
        return inWorkspace("list_files", id, directory, ({ workspace }) => workspace.list(directory ?? "", depth))
      },
      readFile: (id, path) => inWorkspace("read_file", id, path, ({ workspace }) => workspace.read(path)),
      fileHistory: (id, path) => inWorkspace("file_history", id, path, ({ workspace }) => workspace.history(path)),
      fileAtIteration: (id, path, iteration) =>
        inWorkspace("file_at_iteration", id, path, ({ workspace }) => workspace.at(path, iteration)),
      probe: Effect.succeedSome({ status: "ok", latencyMs: 0 })
    }
  })

/** The agent platform in memory. Its agents take the commands of the simulator, such as `/ask` and `/write`. */
export const layer = (options?: Options): Layer.Layer<AgentPlatform> => Layer.scoped(AgentPlatform, make(options))
