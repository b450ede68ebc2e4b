/** Adapts the plain client to Effect: its clock, its token, its calls. */
import { Duration, Effect, FiberId, Redacted, Runtime, Stream } from "effect"
import type * as Plain from "../Client.ts"
import { isClientError, isSessionsError } from "../Errors.ts"
import * as Errors from "./Errors.ts"

const classes = { ...Errors }

/** Every error of a call. */
export type ClientError = InstanceType<(typeof classes)[Plain.ClientError["_tag"]]>

export type SessionsError = InstanceType<(typeof classes)[Plain.SessionsError["_tag"]]>

/** An error of the plain client of sessions as one of Effect, which has the same members. */
export const fromPlainSessions = (error: Plain.SessionsError): SessionsError => {
  const { cause, message } = error
  const Class = classes[error._tag] as new (members: object) => SessionsError
  return new Class({ ...error, message, ...(cause !== undefined && { cause }) })
}

export const fromPlain = (error: Plain.ClientError): ClientError => fromPlainSessions(error) as ClientError

/** The credential, or an effect that returns it for each attempt. */
export type Token<E, R> = string | Redacted.Redacted | Effect.Effect<string | Redacted.Redacted, E, R>

/** A type without the signal: effects are interrupted instead. */
export type WithoutSignal<A> = A extends unknown ? ("signal" extends keyof A ? Omit<A, "signal"> : A) : never

type Arguments<P> = { [I in keyof P]: WithoutSignal<P[I]> }

/** The calls of a plain client as effects, and its iterables as streams. */
export type Effectful<Client, E> = {
  readonly [Name in keyof Client]: Client[Name] extends (...args: infer P) => infer R
    ? R extends AsyncIterable<infer A>
      ? (...args: Arguments<P>) => Stream.Stream<A, E>
      : (...args: Arguments<P>) => Effect.Effect<Awaited<R>, E>
    : never
}

/** Effect's clock and random numbers. A fiber waits for each timer. */
export const clock: Effect.Effect<Plain.Clock> = Effect.gen(function* () {
  const clock = yield* Effect.clock
  const random = yield* Effect.random
  const runFork = Runtime.runFork(yield* Effect.runtime())
  return {
    now: () => Number(clock.unsafeCurrentTimeNanos()) / 1e6,
    after: (ms, callback) => {
      const fiber = runFork(Effect.zipRight(clock.sleep(Duration.millis(ms)), Effect.sync(callback)))
      return () => fiber.unsafeInterruptAsFork(FiberId.none)
    },
    random: () => Effect.runSync(random.next)
  }
})

const textOf = (token: string | Redacted.Redacted): string =>
  typeof token === "string" ? token : Redacted.value(token)

/** The token in the form of the plain client. */
export const tokenOf = <E, R>(token: Token<E, R>): Effect.Effect<Plain.Token, never, R> =>
  Effect.map(Effect.runtime<R>(), runtime => {
    const runPromise = Runtime.runPromise(runtime)
    return Effect.isEffect(token) ? () => runPromise(Effect.map(token, textOf)) : textOf(token)
  })

const errorsOf = <Error, E>(isError: (u: unknown) => u is Error, fromPlain: (error: Error) => E) => {
  const failWith = (error: unknown): Effect.Effect<never, E> =>
    isError(error) ? Effect.fail(fromPlain(error)) : Effect.die(error)
  return {
    call: <A>(run: (signal: AbortSignal) => Promise<A>): Effect.Effect<A, E> =>
      Effect.catchAll(Effect.tryPromise({ try: run, catch: error => error }), failWith),
    streamOf: <A>(iterable: AsyncIterable<A>): Stream.Stream<A, E> =>
      Stream.catchAll(
        Stream.fromAsyncIterable(iterable, error => error),
        failWith
      )
  }
}

/** Calls and iterables of the client of the store as effects and streams. Errors of other types are defects. */
export const { call, streamOf } = errorsOf(isClientError, fromPlain)

export const sessions = errorsOf(isSessionsError, fromPlainSessions)
