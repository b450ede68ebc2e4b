import { type IncomingMessage, ServerResponse } from "node:http"
import { Socket } from "node:net"
import type { Duplex } from "node:stream"
import { Cause, Effect, FiberSet, type Redacted, type Scope } from "effect"
import * as Answer from "./Answer.ts"
import { type Plan, sound } from "./Fault.ts"
import type { Faults } from "./Faults.ts"
import type { Ledger } from "./Ledger.ts"
import type { Handlers } from "./Listener.ts"
import { type Call, callOf, type Service } from "./Operation.ts"

/** A request to become a WebSocket. */
export interface Upgrade {
  /** What the client sent behind the handshake already. */
  readonly head: Buffer
  /** Takes the connection over; from then on no answer is sent but by whoever took it. */
  readonly take: () => Duplex
}

/** One request on its way to an answer. */
export interface Exchange extends Call {
  readonly request: IncomingMessage
  readonly query: URLSearchParams
  readonly plan: Plan
  readonly upgrade: Upgrade | undefined
}

/** One of the two services that are played. */
export interface Played {
  readonly service: Service
  readonly key: Redacted.Redacted | undefined
  /** Carries a request out; without an answer where it took the upgrade. */
  readonly carryOut: (exchange: Exchange) => Effect.Effect<Answer.Answer | undefined, Answer.Refused>
}

const notFound = new Answer.Refused({ status: 404, message: "Not found" })

/** What a status fault answers. */
const injected = ({ status, retryAfter }: Extract<Plan["instead"], { kind: "status" }>): Answer.Answer =>
  Answer.json(
    status,
    { error: `Injected status ${status}` },
    {
      ...(retryAfter === undefined ? {} : { "retry-after": String(retryAfter) }),
      // A client that follows redirects shows itself by asking for this.
      ...(status < 400 ? { location: "/redirected" } : {})
    }
  )

const isHealth = ({ operation }: Call): boolean => operation === "platform_health" || operation === "inference_health"

/** Works on requests of one service, each in a fiber that ends when its client goes. */
export const handlers = (played: Played, faults: Faults, ledger: Ledger): Effect.Effect<Handlers, never, Scope.Scope> =>
  Effect.gen(function* () {
    const run = yield* FiberSet.makeRuntime<never>()

    const carryOut = (exchange: Exchange) =>
      Effect.gen(function* () {
        if (!isHealth(exchange)) yield* Answer.authorize(exchange.request, played.key)
        return yield* played.carryOut(exchange)
      }).pipe(
        Effect.catchTag("Refused", refused => Effect.succeed(Answer.refusal(refused))),
        Effect.catchAllCause(cause =>
          Cause.isInterruptedOnly(cause)
            ? Effect.interrupt
            : Effect.as(
                Effect.logError("The simulator failed", cause),
                Answer.json(500, { error: "The simulator failed" })
              )
        )
      )

    const serve = (request: IncomingMessage, response: ServerResponse, upgrade: Exchange["upgrade"]) =>
      Effect.gen(function* () {
        // Taken apart by hand, as URL would fold dot segments that a client must never have sent.
        const [path = "", query = ""] = (request.url ?? "").split("?", 2)
        const call = callOf(played.service, request.method ?? "", path)
        if (call === undefined) {
          ledger.unknownRequest()
          return yield* Answer.deliver(response, Answer.refusal(notFound), sound)
        }
        ledger.request(call.operation, request)
        const plan = yield* faults.plan(call.operation)
        if (plan.latencyMillis > 0) yield* Effect.sleep(plan.latencyMillis)
        if (plan.instead?.kind === "hang") return yield* Effect.never
        if (plan.instead?.kind === "reset") {
          request.socket.resetAndDestroy()
          return yield* Effect.void
        }
        if (plan.instead?.kind === "status") return yield* Answer.deliver(response, injected(plan.instead), plan)
        const answer = yield* carryOut({ ...call, request, query: new URLSearchParams(query), plan, upgrade })
        if (answer === undefined) return yield* Effect.void
        const spoilt = plan.malformed && answer.headers["content-type"] === "application/json"
        return yield* Answer.deliver(response, spoilt ? Answer.halved(answer) : answer, plan)
      })

    return {
      request: (request, response) => {
        Answer.endWith(response, run(serve(request, response, undefined)))
      },
      upgrade: (request, socket, head) => {
        // A refused handshake is answered like any request.
        const response = new ServerResponse(request)
        response.shouldKeepAlive = false
        if (!(socket instanceof Socket)) {
          socket.destroy()
          return
        }
        response.assignSocket(socket)
        response.once("finish", () => socket.end())
        socket.on("error", () => socket.destroy())
        const work = run(
          serve(request, response, {
            head,
            take: () => {
              response.detachSocket(socket)
              return socket
            }
          })
        )
        Answer.endWith(response, work)
      }
    }
  })
