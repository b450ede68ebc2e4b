/** Which entries an export has, and in which order. */
import { type Chunk, Effect, Option, Scope, Stream } from "effect"
import type { Entry } from "../../Client/Model.ts"
import type { ClientError, Service } from "../../EffectClient/Client.ts"
import { compare } from "../../Storage/KeyOrder.ts"

/** What is exported. */
export interface Job {
  /** Each once, in this order; all in the order of their UTF-8 where there is none. */
  readonly namespaces: ReadonlyArray<string>
  /** What keys start with. */
  readonly prefix: string
}

/** Where an export has come to: an entry. */
export interface Position {
  readonly namespace: string
  readonly key: string
}

/** Whether an entry is one of the export, and comes after a position. */
export const isNext = ({ namespaces, prefix }: Job, last: Position | undefined, next: Position): boolean => {
  if (!next.key.startsWith(prefix)) return false
  const place = namespaces.indexOf(next.namespace)
  if (namespaces.length > 0 && place === -1) return false
  if (last === undefined) return true
  if (next.namespace === last.namespace) return compare(last.key, next.key) < 0
  return namespaces.length > 0
    ? place > namespaces.indexOf(last.namespace)
    : compare(last.namespace, next.namespace) < 0
}

/** Entries that were read at one moment, and the log of that moment. */
export interface Page {
  readonly items: ReadonlyArray<Entry>
  readonly epoch: string
}

/** The entries of an export after a position, page by page, each page read as it is asked for. */
export const pagesAfter = (
  client: Service,
  { namespaces, prefix }: Job,
  last: Position | undefined
): Stream.Stream<Page, ClientError> => {
  const of = (namespace: string): Stream.Stream<Page, ClientError> => {
    if (namespace !== last?.namespace) return client.list(namespace, { prefix })
    return Stream.map(client.list(namespace, { prefix, start: last.key }), ({ epoch, items }) => ({
      epoch,
      items: items.filter(({ key }) => key !== last.key)
    }))
  }
  if (namespaces.length > 0) {
    const begun = last === undefined ? 0 : namespaces.indexOf(last.namespace)
    return Stream.flatMap(Stream.fromIterable(namespaces.slice(begun)), of)
  }
  const isLeft = (namespace: string) => last === undefined || compare(last.namespace, namespace) <= 0
  return Stream.flatMap(client.namespaces(), ({ epoch, namespaces }) =>
    Stream.concat(
      Stream.succeed({ epoch, items: [] }),
      Stream.flatMap(Stream.fromIterable(namespaces.map(({ namespace }) => namespace).filter(isLeft)), of)
    )
  )
}

/**
 * A stream that is begun anew where it fails and `retrying` allows it: `make` is then to go on behind what has been taken
 * from it.
 */
export const resumable = <A>(
  make: () => Stream.Stream<A, ClientError>,
  retrying: <B>(request: Effect.Effect<B, ClientError>) => Effect.Effect<B, ClientError>
): Stream.Stream<A, ClientError> =>
  Stream.unwrapScoped(
    Effect.map(Effect.scope, scope => {
      let pull: Effect.Effect<Chunk.Chunk<A>, Option.Option<ClientError>> | undefined
      const begin = Effect.tap(Scope.extend(Stream.toPull(Stream.suspend(make)), scope), begun => {
        pull = begun
      })
      const next = Effect.flatten(Effect.suspend(() => (pull === undefined ? begin : Effect.succeed(pull)))).pipe(
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
