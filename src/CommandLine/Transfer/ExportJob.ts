/** The entries of an export, and their order. */
import { type Chunk, Effect, Option, Scope, Stream } from "effect"
import { compare } from "../../Client/KeyOrder.ts"
import type { Entry } from "../../Client/Model.ts"
import type { ClientError, Service } from "../../EffectClient/Client.ts"

/** What is exported. */
export interface Job {
  /** Without duplicates, in this order. If it is empty, all namespaces in the order of their UTF-8. */
  readonly namespaces: ReadonlyArray<string>
  /** The prefix of keys. */
  readonly prefix: string
}

/** The position of an entry in an export. */
export interface Position {
  readonly namespace: string
  readonly key: string
}

/** Entries of one snapshot, and the epoch of the change log then. */
export interface Page {
  readonly items: ReadonlyArray<Entry>
  readonly epoch: string
}

/** The entries of one namespace after a position, page by page. */
const pagesOf = (
  client: Service,
  namespace: string,
  prefix: string,
  last: Position | undefined
): Stream.Stream<Page, ClientError> => {
  if (namespace !== last?.namespace) return client.list(namespace, { prefix })
  return Stream.map(client.list(namespace, { prefix, start: last.key }), ({ epoch, items }) => ({
    epoch,
    items: items.filter(({ key }) => key !== last.key)
  }))
}

/** The entries of an export after a position, page by page. Each page is requested when the stream is pulled. */
export const pagesAfter = (
  client: Service,
  { namespaces, prefix }: Job,
  last: Position | undefined
): Stream.Stream<Page, ClientError> => {
  const pagesOfAll = (names: ReadonlyArray<string>) =>
    Stream.flatMap(Stream.fromIterable(names), name => pagesOf(client, name, prefix, last))
  if (namespaces.length > 0) {
    return pagesOfAll(namespaces.slice(last === undefined ? 0 : namespaces.indexOf(last.namespace)))
  }
  const isLeft = (namespace: string) => last === undefined || compare(last.namespace, namespace) <= 0
  return Stream.flatMap(client.namespaces(), ({ epoch, namespaces }) =>
    Stream.concat(
      // The epoch is checked also if no namespace is left.
      Stream.succeed({ epoch, items: [] }),
      pagesOfAll(namespaces.map(({ namespace }) => namespace).filter(isLeft))
    )
  )
}

/**
 * A stream that restarts after a failure if `retrying` repeats the pull. `make` is called again then; its new stream must
 * continue after the elements that were pulled already.
 */
export const resumable = <A>(
  make: () => Stream.Stream<A, ClientError>,
  retrying: <B>(request: Effect.Effect<B, ClientError>) => Effect.Effect<B, ClientError>
): Stream.Stream<A, ClientError> =>
  Stream.unwrapScoped(
    Effect.map(Effect.scope, scope => {
      let pull: Effect.Effect<Chunk.Chunk<A>, Option.Option<ClientError>> | undefined
      const start = Effect.tap(Scope.extend(Stream.toPull(Stream.suspend(make)), scope), started => {
        pull = started
      })
      const next = Effect.flatten(Effect.suspend(() => (pull === undefined ? start : Effect.succeed(pull)))).pipe(
        Effect.tapError(() =>
          Effect.sync(() => {
            pull = undefined
          })
        ),
        Effect.asSome,
        Effect.catchAll(
          Option.match({ onNone: () => Effect.succeed(Option.none<Chunk.Chunk<A>>()), onSome: Effect.fail })
        )
      )
      return Stream.unfoldChunkEffect(undefined, () =>
        Effect.map(
          retrying(next),
          Option.map(chunk => [chunk, undefined] as const)
        )
      )
    })
  )
