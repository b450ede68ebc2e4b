/**
 * The client of the key-value store for programs in Effect: the plain client with the clock, the random numbers and the
 * errors of Effect.
 */
import { Context, Duration, Effect, Layer, Option, Stream } from "effect"
import * as Plain from "../Client.ts"
import { type ClientError, ConnectionFailed } from "./Errors.ts"
import { call, clock, streamOf, type Token, tokenOf, type WithoutSignal } from "./Run.ts"

export type {
  ConnectionStatus,
  FileContent,
  FileEntry,
  FileIteration,
  JsonFormat,
  Position,
  SentMessage,
  Session,
  SessionEvent,
  SessionPage,
  SessionUpdate
} from "../Client.ts"
export * from "./Errors.ts"
export * from "./Sessions.ts"

/** The service, the credential, and limits. */
export interface ClientOptions<E = never, R = never>
  extends Pick<
    Plain.ClientOptions,
    "baseUrl" | "prefix" | "maxResponseBytes" | "transports" | "WebSocket" | "fetch" | "json"
  > {
  /** The credential, or an effect that returns it for each attempt. */
  readonly token: Token<E, R>
  /** The time limit of an answer; default 30 seconds. */
  readonly timeout?: Duration.DurationInput
}

/** The start: the entries of a namespace, or a position of the log. */
export type FollowOptions = WithoutSignal<Plain.FollowOptions>

/** A client of the key-value store. `Client` of the plain client documents the members. */
export interface Service {
  readonly get: (
    namespace: string,
    key: string,
    options?: WithoutSignal<Plain.GetOptions>
  ) => Effect.Effect<Option.Option<Plain.Entry>, ClientError>
  readonly getMany: (
    addresses: ReadonlyArray<Plain.EntryAddress>
  ) => Effect.Effect<Plain.EntriesRead<Option.Option<Plain.Entry>>, ClientError>
  readonly getManyKeys: (
    addresses: ReadonlyArray<Plain.EntryAddress>
  ) => Effect.Effect<Plain.EntriesRead<Option.Option<Plain.EntryKey>>, ClientError>
  readonly set: (
    namespace: string,
    key: string,
    value: unknown,
    options?: WithoutSignal<Plain.SetOptions>
  ) => Effect.Effect<Plain.Entry, ClientError>
  readonly delete: (
    namespace: string,
    key: string,
    options?: WithoutSignal<Plain.DeleteOptions>
  ) => Effect.Effect<boolean, ClientError>
  readonly deletePrefix: (
    namespace: string,
    prefix: string,
    options?: WithoutSignal<Plain.DeletePrefixOptions>
  ) => Effect.Effect<Plain.RemoveResult, ClientError>
  readonly batch: (
    operations: ReadonlyArray<Plain.Operation>,
    options?: WithoutSignal<Plain.BatchOptions>
  ) => Effect.Effect<ReadonlyArray<Plain.OperationResult>, ClientError>
  readonly list: (
    namespace: string,
    options?: WithoutSignal<Plain.ListOptions>
  ) => Stream.Stream<Plain.ListPage, ClientError>
  readonly listKeys: (
    namespace: string,
    options?: WithoutSignal<Plain.ListOptions>
  ) => Stream.Stream<Plain.ListPage<Plain.EntryKey>, ClientError>
  readonly namespaces: (
    options?: WithoutSignal<Plain.NamespacesOptions>
  ) => Stream.Stream<Plain.NamespacePage, ClientError>
  readonly tenants: (options?: WithoutSignal<Plain.TenantsOptions>) => Stream.Stream<Plain.TenantPage, ClientError>
  /** A snapshot of the whole store. Its content fails if the connection is lost before the end. */
  readonly backup: (
    options?: WithoutSignal<Plain.BackupOptions>
  ) => Effect.Effect<
    Omit<Plain.StoreBackup, "content"> & { readonly content: Stream.Stream<Uint8Array, ClientError> },
    ClientError
  >
  readonly follow: (options: FollowOptions) => Stream.Stream<Plain.FollowEvent, ClientError>
}

/** The client as a service. */
export class Client extends Context.Tag("causeway/Client")<Client, Service>() {}

/** A body that is incomplete. */
const lost = (cause: unknown): ClientError =>
  new ConnectionFailed({ message: `The connection was lost: ${cause}`, cause, isTimeout: false })

/** Makes a client. */
export const make = <E = never, R = never>(options: ClientOptions<E, R>): Effect.Effect<Service, never, R> =>
  Effect.gen(function* () {
    const { timeout = "30 seconds", token, ...rest } = options
    const client = Plain.makeClient({
      ...rest,
      token: yield* tokenOf(token),
      timeoutMs: Duration.toMillis(timeout),
      clock: yield* clock
    })
    return {
      get: (namespace, key, options) =>
        Effect.map(
          call(signal => client.get(namespace, key, { ...options, signal })),
          Option.fromNullable
        ),
      getMany: addresses =>
        Effect.map(
          call(signal => client.getMany(addresses, { signal })),
          read => ({ ...read, items: read.items.map(Option.fromNullable) })
        ),
      getManyKeys: addresses =>
        Effect.map(
          call(signal => client.getManyKeys(addresses, { signal })),
          read => ({ ...read, items: read.items.map(Option.fromNullable) })
        ),
      set: (namespace, key, value, options) =>
        call(signal => client.set(namespace, key, value, { ...options, signal })),
      delete: (namespace, key, options) => call(signal => client.delete(namespace, key, { ...options, signal })),
      deletePrefix: (namespace, prefix, options) =>
        call(signal => client.deletePrefix(namespace, prefix, { ...options, signal })),
      batch: (operations, options) => call(signal => client.batch(operations, { ...options, signal })),
      list: (namespace, options) => streamOf(client.list(namespace, options)),
      listKeys: (namespace, options) => streamOf(client.listKeys(namespace, options)),
      namespaces: options => streamOf(client.namespaces(options)),
      tenants: options => streamOf(client.tenants(options)),
      backup: options =>
        Effect.map(
          call(signal => client.backup({ ...options, signal })),
          ({ content, ...backup }) => ({
            ...backup,
            content: Stream.fromReadableStream({ evaluate: () => content, onError: lost })
          })
        ),
      follow: options => streamOf(client.follow(options))
    }
  })

/** The client as a layer. */
export const layer = <E = never, R = never>(options: ClientOptions<E, R>): Layer.Layer<Client, never, R> =>
  Layer.effect(Client, make(options))
