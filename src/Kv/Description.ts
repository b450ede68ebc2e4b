/**
 * The documentation of the key-value endpoints in the OpenAPI document: names for generated clients, summaries, headers
 * and examples.
 */
import { etag, type Header, operation, retryAfter } from "../Http/OpenApi/Describe.ts"

export const entry = {
  namespace: "tenant:acme/settings",
  key: "theme",
  value: { dark: true },
  version: 3,
  updatedBy: "api",
  updatedAt: 1767225600000,
  expiresAt: null
} as const

/** The example change record: that of the {@link entry}. */
export const change = {
  seq: 42,
  op: "set",
  namespace: entry.namespace,
  key: entry.key,
  value: entry.value,
  version: entry.version,
  actor: entry.updatedBy,
  timestamp: entry.updatedAt,
  tenantId: "acme"
} as const

/** A response header, required unless `presence` says otherwise. */
const header = (
  description: string,
  schema: Header["schema"],
  example: Header["example"],
  presence?: { readonly required: false }
): Header => ({ description, ...presence, schema, example })

const optional = { required: false } as const

const natural = { type: "integer", minimum: 0 }

const lastSeq = header("The position of the change log at which the list was read.", natural, 42)

const epoch = header(
  "Identifies the change log. After a restore from a backup it has a new value.",
  { type: "string", minLength: 1, maxLength: 64 },
  "9f86d081884c7d65"
)

const more = header(
  "The page may not reach the end of the log, even if it has no changes: poll again. It is absent at the end.",
  { type: "string", enum: ["true"] },
  "true",
  optional
)

const count = header(
  "How many entries the list has on all its pages, with the parameter `count`.",
  natural,
  1,
  optional
)

/** The position of the log that a list belongs to. */
const position = { "Kv-Last-Seq": lastSeq, "Kv-Epoch": epoch }

const nextPage = header(
  'A link to the next page, as `<…>; rel="next"`, if there is one.',
  { type: "string" },
  '</api/v1/kv/tenant%3Aacme%2Fsettings?limit=1&cursor=6Uzq1rMi.dGhlbWU>; rel="next"',
  optional
)

const malformed = (error: string) => ({ example: { error: `Invalid request: ${error}` } })

const badLimit = malformed('limit: must be a whole number from 1 to 1000, not "0"')

const badPrecondition = { example: { error: "If-Match must be a version in quotes, a list of them, or *" } }

const trimmedSeq = header(
  "The last change that is no longer kept, if `after` is older: the remaining changes follow with this `after`.",
  { type: "integer", minimum: 1 },
  41,
  optional
)

const trimmed = {
  description:
    "`after` is older than the history that is kept, or `epoch` is that of another log. List again and follow from `Kv-Last-Seq`.",
  headers: { "Kv-Epoch": epoch, "Kv-Trimmed-Seq": trimmedSeq },
  example: { error: "Changes up to seq 41 are no longer kept; list again and follow from Kv-Last-Seq" }
}

const badAfter = malformed('after: must be a whole number not below 0, not "-1"')

export const namespaces = operation({
  operationId: "listNamespaces",
  summary: "List namespaces, with the numbers of their entries",
  description:
    "A namespace exists while it has entries. Namespaces are sorted by their UTF-8 bytes. A `Link` header leads to the next page, if there is one.",
  answers: {
    200: {
      description: "The namespaces of the page.",
      headers: {
        ...position,
        Link: { ...nextPage, example: '</api/v1/kv?limit=1&cursor=6Uzq1rMi.dGVuYW50OmFjbWUvc2V0dGluZ3M>; rel="next"' }
      },
      example: { namespaces: [{ namespace: entry.namespace, count: 1 }] }
    },
    400: badLimit
  }
})

export const tenants = operation({
  operationId: "listTenants",
  summary: "List tenants, with the numbers of their namespaces and entries",
  description:
    "A tenant exists while it has entries. Tenants are sorted by their UTF-8 bytes; namespaces that belong to none come first, as one with an empty id. A `Link` header leads to the next page, if there is one.",
  answers: {
    200: {
      description: "The tenants of the page.",
      headers: {
        ...position,
        Link: { ...nextPage, example: '</api/v1/tenants?limit=1&cursor=47DEQpj8.YWNtZS8>; rel="next"' }
      },
      example: { tenants: [{ tenant: "acme", namespaces: 1, entries: 1 }] }
    },
    400: badLimit
  }
})

export const list = operation({
  operationId: "listEntries",
  summary: "List the entries of a namespace",
  description:
    "Entries are sorted by the UTF-8 bytes of the key, with `reverse` the other way round. `Kv-Last-Seq` is the position of the change log at which the list was read. With `limit`, a `Link` header leads to the next page, if there is one.",
  answers: {
    200: {
      description: "The entries of the namespace, or of the page.",
      headers: { ...position, "Kv-Count": count, Link: nextPage },
      example: { items: [entry] }
    },
    400: badLimit
  }
})

export const get = operation({
  operationId: "getEntry",
  summary: "Read an entry",
  description: "`ETag` is the version in quotes.",
  answers: {
    200: { description: "The entry.", headers: { ETag: etag }, example: entry },
    304: { headers: { ETag: etag } },
    400: badPrecondition,
    404: { description: "There is no such entry." }
  }
})

export const set = operation({
  operationId: "setEntry",
  summary: "Set an entry",
  description: "Replaces the whole entry, including its expiry. `ETag` is the new version in quotes.",
  requests: {
    set: { summary: "Set a value", value: { value: { dark: true }, actor: "importer" } },
    expiring: { summary: "Set a value for a minute", value: { value: "held", ttlMs: 60000 } }
  },
  answers: {
    200: { description: "The entry as stored.", headers: { ETag: etag }, example: entry },
    400: malformed("value: is missing")
  }
})

export const remove = operation({
  operationId: "deleteEntry",
  summary: "Delete an entry",
  description: "`deleted` is false if there was no entry. In that case no change is recorded.",
  answers: {
    200: { description: "Whether there was an entry to delete.", example: { deleted: true } },
    400: badPrecondition
  }
})

export const removePrefix = operation({
  operationId: "deleteEntries",
  summary: "Delete the entries of a prefix",
  description:
    "Deletes the first entries of the prefix, at most `limit`, in one batch: all or none, with a change each and consecutive `seq`. Repeat it while `more` is true.",
  answers: {
    200: { description: "What was deleted.", example: { deleted: true, count: 2, more: false } },
    400: malformed("prefix: is missing")
  },
  // There is no precondition.
  never: [412]
})

export const read = operation({
  operationId: "readEntries",
  summary: "Read several entries from one snapshot",
  description: "The credential that only reads may use it. A key without an entry has null.",
  requests: {
    read: {
      summary: "Read two entries",
      value: {
        keys: [
          { namespace: entry.namespace, key: entry.key },
          { namespace: entry.namespace, key: "absent" }
        ]
      }
    }
  },
  answers: {
    200: { description: "The entries.", headers: position, example: { items: [entry, null] } },
    400: malformed("keys: is missing"),
    413: { example: { error: "keys has 1001 elements; the limit is 1000" } }
  }
})

export const batch = operation({
  operationId: "applyBatch",
  summary: "Apply operations atomically, in order",
  description: "Either all operations are applied, with consecutive `seq`, or none is.",
  requests: {
    move: {
      summary: "Move a value, if it is still at version 3",
      value: {
        operations: [
          { op: "set", namespace: "tenant:acme/settings", key: "scheme", value: { dark: true }, ifVersion: 0 },
          { op: "delete", namespace: "tenant:acme/settings", key: "theme", ifVersion: 3 }
        ],
        actor: "importer"
      }
    }
  },
  answers: {
    200: {
      description: "All operations are applied.",
      example: { ok: true, results: [{ version: 1 }, { deleted: true }] }
    },
    400: malformed('operations[0].op: Expected "set" | "delete", actual "put"'),
    412: {
      description: "A precondition does not hold. Nothing was written. The message names the operation.",
      headers: {},
      example: { error: "Precondition failed at operations[1]: the entry is absent" }
    },
    413: { example: { error: "operations has 1001 elements; the limit is 1000" } }
  }
})

export const backup = operation({
  operationId: "backupStore",
  summary: "Copy the whole store",
  description:
    "A SQLite database with all entries, tombstones and the change log, all of one snapshot. `causeway restore` restores it. Histories of sessions are not in it. The answer begins when the copy is complete. One backup is made and sent at a time; in the meantime other requests get 503. It needs the credential that writes, and one that is not limited to a tenant.",
  answers: {
    200: {
      description: "The whole store as a SQLite database.",
      headers: {
        "Content-Length": header("Its size in bytes.", natural, 131072),
        "Kv-Last-Seq": { ...lastSeq, description: "The last change that the copy has." },
        "Kv-Epoch": epoch,
        "Repr-Digest": header(
          "SHA-256 of the whole body (RFC 9530).",
          { type: "string" },
          "sha-256=:d435Qo+nKZ+gLcUHn7GQtQ72hiBVAgqoLsZnZPiTGPk=:"
        )
      }
    },
    501: {
      example: {
        error:
          "The store is in PostgreSQL: back it up by pg_basebackup or pg_dump. causeway migrate-store copies it into SQLite"
      }
    },
    503: {
      description: "Another backup is being made or sent, or the store is unavailable.",
      example: { error: "Another backup is being made or sent" },
      headers: { "Retry-After": retryAfter(10) }
    },
    507: { example: { error: "The disk of /data has 90 MiB left, and the copy needs 1,088 MiB" } }
  }
})

export const changes = operation({
  operationId: "listChanges",
  summary: "Poll the change log",
  description:
    "Changes are in ascending `seq`. `Kv-Epoch` names the log; send it as `epoch` with the next `after`. Without it, only a `lastSeq` below `after` shows that the log was reset. A page with fewer than `limit` changes, or none, is the end of the log only if `Kv-More` is absent: a poll of a namespace scans a limited part of the log.",
  answers: {
    200: {
      description: "The changes, possibly none, and the position to continue from.",
      headers: { "Kv-Epoch": epoch, "Kv-More": more },
      example: { changes: [change], lastSeq: 42 }
    },
    400: badAfter,
    410: trimmed
  }
})

export const changesStream = operation({
  operationId: "streamChanges",
  summary: "Follow the change log by Server-Sent Events",
  description: "A comment every 15 seconds keeps the connection alive.",
  answers: {
    200: { example: `id: 42@${epoch.example}\ndata: ${JSON.stringify(change)}\n\n` },
    400: badAfter,
    410: trimmed
  }
})

export const changesSocket = operation({
  operationId: "openChangesSocket",
  summary: "Follow the change log by WebSocket",
  description:
    'Frames are `{"type":"changes","changes":[…],"lastSeq":n,"epoch":"…"}` and, after 15 idle seconds, `{"type":"heartbeat","lastSeq":n,"epoch":"…"}`. If the service has another log than `epoch` says, it sends `{"type":"reset","epoch":"…","lastSeq":n}` and closes with 4010: list again. Close code 4008 means that the client read too slowly; it resumes with `after`. A request that is not a WebSocket handshake is answered with 500. A browser sends the key as a subprotocol: `causeway.v1, bearer.<base64url of the key>`.',
  answers: {
    400: badAfter,
    403: { description: "The origin of the page may not connect.", example: { error: "This origin may not connect" } },
    410: trimmed,
    500: {
      description: "The WebSocket upgrade failed, or a defect of the service.",
      example: { error: "WebSocket upgrade failed: the request is not a WebSocket handshake" }
    }
  }
})
