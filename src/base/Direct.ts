/**
 * Effects that need no fiber.
 *
 * They are ordinary effects and can run in a fiber. {@link run} runs them without one, which costs a fraction of that.
 * The functions of this module keep an effect direct. An `Exit` and an `Either` are direct.
 * Direct effects are lazy: each run does the work again.
 */
import { Cause, type Context, Effect, Effectable, Either, Exit, type Fiber, FiberId, Runtime } from "effect"

/** Completes an asynchronous effect with the result of another effect. */
type Resume<A, E, R> = (effect: Effect.Effect<A, E, R>) => void

/** An effect that is computed each time that it is run. */
class Suspend<A, E, R> extends Effectable.Class<A, E, R> {
  constructor(readonly evaluate: () => Effect.Effect<A, E, R>) {
    super()
  }

  commit(): Effect.Effect<A, E, R> {
    return this.evaluate()
  }
}

/** An effect that ends by a callback. */
class Async<A, E, R> extends Effectable.Class<A, E, R> {
  constructor(
    readonly register: (resume: Resume<A, E, R>) => () => void,
    readonly isInterruptible = true
  ) {
    super()
  }

  commit(): Effect.Effect<A, E, R> {
    const ended = Effect.async<A, E, R>(resume => Effect.sync(this.register(resume)))
    return this.isInterruptible ? ended : Effect.uninterruptible(ended)
  }
}

/** Replaces the effect with which an asynchronous effect ends. */
const mapEnd = <A, E, R, B, E2, R2>(
  { isInterruptible, register }: Async<A, E, R>,
  f: (effect: Effect.Effect<A, E, R>) => Effect.Effect<B, E2, R2>
): Async<B, E2, R2> => new Async(resume => register(effect => resume(f(effect))), isInterruptible)

const neverCanceled = (): void => {}

/** An effect that is not interrupted before its end. */
class Uninterruptible<A, E, R> extends Suspend<A, E, R> {
  constructor(private readonly self: Effect.Effect<A, E, R>) {
    super(() => {
      const current = advance(self)
      if (exitOf(current) !== undefined) return current
      if (!(current instanceof Async)) return Effect.uninterruptible(current)
      return new Async<A, E, R>(resume => {
        current.register((effect: Effect.Effect<A, E, R>) => resume(new Uninterruptible(effect)))
        return neverCanceled
      }, false)
    })
  }

  override commit(): Effect.Effect<A, E, R> {
    return Effect.uninterruptible(this.self)
  }
}

/** `Effect.suspend`. */
export const suspend = <A, E, R>(evaluate: () => Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  new Suspend(evaluate)

/** `Effect.sync`. */
export const sync = <A>(evaluate: () => A): Effect.Effect<A> => new Suspend(() => Exit.succeed(evaluate()))

/** `Effect.async`. `register` returns a function that cancels the work; the callback of canceled work does nothing. */
export const async = <A, E = never, R = never>(
  register: (resume: Resume<A, E, R>) => () => void
): Effect.Effect<A, E, R> => new Async(register)

/** `Effect.uninterruptible`. */
export const uninterruptible = <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  new Uninterruptible(self)

/** The exit of a computation. What it throws is a defect. */
export const attempt = <A>(evaluate: () => A): Exit.Exit<A> => {
  try {
    return Exit.succeed(evaluate())
  } catch (defect) {
    return Exit.die(defect)
  }
}

/** Evaluates an effect up to its exit, its callback or the first step that needs a fiber. */
const advance = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> => {
  let current = effect
  try {
    while (current instanceof Suspend) current = current.evaluate()
    return current
  } catch (error) {
    return Exit.die(error)
  }
}

/** The exit that an `Exit` or an `Either` represents; `undefined` if the effect has to be run. */
export const exitOf = <A, E, R>(effect: Effect.Effect<A, E, R>): Exit.Exit<A, E> | undefined => {
  if (Exit.isExit(effect)) return effect as Exit.Exit<A, E>
  if (!Either.isEither(effect)) return undefined
  const either = effect as Either.Either<A, E>
  return Either.isLeft(either) ? Exit.fail(either.left) : Exit.succeed(either.right)
}

/** `Effect.provide` of a context. */
export const provide = <A, E, R>(self: Effect.Effect<A, E, R>, context: Context.Context<R>): Effect.Effect<A, E> =>
  new Suspend<A, E, never>(() => {
    const current = advance(self)
    const exit = exitOf(current)
    if (exit !== undefined) return exit
    return current instanceof Async
      ? mapEnd(current, (effect: Effect.Effect<A, E, R>) => provide(effect, context))
      : Effect.provide(current, context)
  })

/** Continues with the exit of an effect, unless it is interrupted. */
export const matchExit = <A, E, R, B, E2, R2>(
  self: Effect.Effect<A, E, R>,
  f: (exit: Exit.Exit<A, E>) => Effect.Effect<B, E2, R2>
): Effect.Effect<B, E2, R | R2> =>
  new Suspend<B, E2, R | R2>(() => {
    const current = advance(self)
    const exit = exitOf(current)
    if (exit !== undefined) return f(exit)
    if (current instanceof Async) return mapEnd(current, (effect: Effect.Effect<A, E, R>) => matchExit(effect, f))
    return Effect.matchCauseEffect(current, {
      onFailure: cause => f(Exit.failCause(cause)),
      onSuccess: value => f(Exit.succeed(value))
    })
  })

/** `Effect.matchEffect`. */
export const matchEffect = <A, E, R, B, E2, R2, C, E3, R3>(
  self: Effect.Effect<A, E, R>,
  options: {
    readonly onFailure: (error: E) => Effect.Effect<B, E2, R2>
    readonly onSuccess: (value: A) => Effect.Effect<C, E3, R3>
  }
): Effect.Effect<B | C, E2 | E3, R | R2 | R3> =>
  matchExit(self, (exit): Effect.Effect<B | C, E2 | E3, R2 | R3> => {
    if (Exit.isSuccess(exit)) return options.onSuccess(exit.value)
    const error = Cause.failureOrCause(exit.cause)
    return Either.isLeft(error) ? options.onFailure(error.left) : Exit.failCause(error.right)
  })

/** `Effect.catchAll`. */
export const catchAll = <A, E, R, B, E2, R2>(
  self: Effect.Effect<A, E, R>,
  f: (error: E) => Effect.Effect<B, E2, R2>
): Effect.Effect<A | B, E2, R | R2> => matchEffect(self, { onFailure: f, onSuccess: Exit.succeed })

/** Replaces an effect that does not end at once. */
export const whilePending = <A, E, R, B, E2, R2>(
  self: Effect.Effect<A, E, R>,
  f: (rest: Effect.Effect<A, E, R>) => Effect.Effect<B, E2, R2>
): Effect.Effect<A | B, E | E2, R | R2> =>
  new Suspend<A | B, E | E2, R | R2>(() => {
    const current = advance(self)
    return exitOf(current) ?? f(current)
  })

/** `Effect.flatMap`. */
export const flatMap = <A, E, R, B, E2, R2>(
  self: Effect.Effect<A, E, R>,
  f: (value: A) => Effect.Effect<B, E2, R2>
): Effect.Effect<B, E | E2, R | R2> =>
  matchExit(
    self,
    (exit): Effect.Effect<B, E | E2, R2> => (Exit.isSuccess(exit) ? f(exit.value) : Exit.failCause(exit.cause))
  )

/** `Effect.map`. */
export const map = <A, E, R, B>(self: Effect.Effect<A, E, R>, f: (value: A) => B): Effect.Effect<B, E, R> =>
  flatMap(self, value => Exit.succeed(f(value)))

/**
 * `Effect.raceFirst`. Direct if both effects are: then the first one to be called back wins, whatever it still does after
 * that.
 */
export const raceFirst = <A, E, R, B, E2, R2>(
  self: Effect.Effect<A, E, R>,
  that: Effect.Effect<B, E2, R2>
): Effect.Effect<A | B, E | E2, R | R2> =>
  new Suspend<A | B, E | E2, R | R2>(() => {
    const first = advance(self)
    if (exitOf(first) !== undefined) return first
    const second = advance(that)
    if (exitOf(second) !== undefined) return second
    const isDirect = first instanceof Async && second instanceof Async
    return isDirect && first.isInterruptible && second.isInterruptible
      ? new Async(resume => registerBoth(first, second, resume))
      : Effect.raceFirst(first, second)
  })

/** Registers two effects, the first of which to be called back cancels the other one. Returns a function that cancels both. */
const registerBoth = <A, E, R>(
  first: Async<A, E, R>,
  second: Async<A, E, R>,
  resume: Resume<A, E, R>
): (() => void) => {
  let winner: unknown
  const cancels = new Map<Async<A, E, R>, () => void>()
  const cancelAll = (): void => {
    for (const cancel of cancels.values()) cancel()
  }
  const enter = (one: Async<A, E, R>): void => {
    if (winner !== undefined) return
    const cancel = one.register(effect => {
      if (winner !== undefined) return
      winner = one
      cancels.delete(one)
      try {
        cancelAll()
      } finally {
        resume(effect)
      }
    })
    if (winner === undefined) cancels.set(one, cancel)
    else if (winner !== one) cancel()
  }
  const end = (): void => {
    winner ??= end
    cancelAll()
  }
  try {
    enter(first)
    enter(second)
  } catch (error) {
    end()
    throw error
  }
  return end
}

/**
 * Runs an effect, in a fiber only if it needs one, and calls `onExit` once, perhaps before it returns. The exit of the
 * fiber that `fork` starts ends the run. The returned function interrupts it; what is uninterruptible ends before.
 * An exception of `onExit` is thrown in the code that caused the exit.
 */
export const run = <A, E, R>(
  effect: Effect.Effect<A, E, R>,
  fork: (effect: Effect.Effect<A, E, R>) => Fiber.RuntimeFiber<A, E>,
  onExit: (exit: Exit.Exit<A, E>) => void
): (() => void) => {
  let isInterrupted = false
  let interrupt = (): void => {}
  const proceed = (next: Effect.Effect<A, E, R>): void => {
    const current = advance(next)
    const exit = exitOf(current)
    if (exit !== undefined) return onExit(exit)
    if (!(current instanceof Async)) {
      const fiber = fork(current)
      fiber.addObserver(onExit)
      interrupt = () => fiber.unsafeInterruptAsFork(FiberId.none)
      return isInterrupted ? interrupt() : undefined
    }
    if (isInterrupted && current.isInterruptible) return onExit(Exit.interrupt(FiberId.none))
    let isOver = false
    let cancel: (() => void) | undefined
    let early: Effect.Effect<A, E, R> | undefined
    const finish = (effect: Effect.Effect<A, E, R>): void => {
      if (isOver) return
      isOver = true
      // The next steps must not throw into `register`.
      if (cancel === undefined) early = effect
      else proceed(effect)
    }
    try {
      cancel = current.register(finish)
    } catch (error) {
      finish(Exit.die(error))
    }
    if (early !== undefined) return proceed(early)
    interrupt = () => {
      if (isOver || !current.isInterruptible) return
      isOver = true
      cancel?.()
      onExit(Exit.interrupt(FiberId.none))
    }
  }
  proceed(effect)
  return () => {
    isInterrupted = true
    interrupt()
  }
}

/**
 * Runs an effect again and again while it returns true, each time as {@link run} does. Its steps are not those of the
 * fiber that waits for the end. The interruption of that fiber waits until the run has ended.
 */
export const repeatWhile = <E, R>(step: Effect.Effect<boolean, E, R>): Effect.Effect<void, E, R> =>
  Effect.flatMap(Effect.runtime<R>(), runtime =>
    Effect.async<void, E>(resume => {
      const fork = Runtime.runFork(runtime)
      let [isOver, isInterrupted] = [false, false]
      let interrupt = (): void => {}
      let onEnd = (exit: Exit.Exit<void, E>): void => resume(exit)
      const isNext = (exit: Exit.Exit<boolean, E>): boolean => {
        if (Exit.isSuccess(exit) && exit.value && !isInterrupted) return true
        isOver = true
        onEnd(Exit.asVoid(exit))
        return false
      }
      const proceed = (): void => {
        // Steps that end at once do not make the stack grow.
        for (let isAgain = true; isAgain; ) {
          isAgain = false
          let isAtOnce = true
          interrupt = run(step, fork, exit => {
            if (!isNext(exit)) return
            if (isAtOnce) isAgain = true
            else proceed()
          })
          isAtOnce = false
        }
        if (isInterrupted) interrupt()
      }
      proceed()
      return Effect.async<void>(done => {
        if (isOver) return done(Effect.void)
        onEnd = () => done(Effect.void)
        isInterrupted = true
        interrupt()
      })
    })
  )
