/**
 * The same interface as a competent engineer writes it in a day: fastify with schemas for requests and answers, and
 * better-sqlite3 with a transaction for each write, in WAL mode and with `synchronous = FULL`.
 */
import { join } from "node:path"
import { app, type EntryPath, entryPath, entrySchema, errorSchema, integer, listen, text } from "./FastifyApp.ts"
import { type Operation, open } from "./FastifyStore.ts"

const store = open(join(process.env.DATA_DIR ?? ".", "peer.db"))
const changeSchema = {
  type: "object",
  properties: {
    seq: integer,
    op: text,
    namespace: text,
    key: text,
    value: {},
    version: integer,
    actor: text,
    timestamp: integer,
    tenantId: text
  }
} as const
app.get<{ Params: EntryPath }>(
  "/api/v1/kv/:namespace/:key",
  { schema: { params: entryPath, response: { 200: entrySchema, 404: errorSchema } } },
  (request, reply) => {
    const { namespace, key } = request.params
    const entry = store.get(namespace, key)
    if (entry === undefined) return reply.code(404).send({ error: "Not found" })
    return reply.header("etag", `"${entry.version}"`).send(entry)
  }
)

app.put<{ Params: EntryPath; Body: { value: unknown; actor?: string } }>(
  "/api/v1/kv/:namespace/:key",
  {
    schema: {
      params: entryPath,
      body: { type: "object", required: ["value"], properties: { value: {}, actor: text } },
      response: { 200: entrySchema }
    }
  },
  (request, reply) => {
    const { namespace, key } = request.params
    const entry = store.set(namespace, key, request.body.value, request.body.actor ?? "api")
    return reply.header("etag", `"${entry.version}"`).send(entry)
  }
)

app.delete<{ Params: EntryPath; Querystring: { actor: string } }>(
  "/api/v1/kv/:namespace/:key",
  {
    schema: {
      params: entryPath,
      querystring: { type: "object", properties: { actor: { ...text, default: "api" } } },
      response: { 200: { type: "object", properties: { deleted: { type: "boolean" } } } }
    }
  },
  (request, reply) => {
    const { namespace, key } = request.params
    return reply.send({ deleted: store.remove(namespace, key, request.query.actor) })
  }
)

app.get<{ Params: { namespace: string }; Querystring: { prefix: string; limit: number } }>(
  "/api/v1/kv/:namespace",
  {
    schema: {
      querystring: {
        type: "object",
        properties: {
          prefix: { ...text, default: "" },
          limit: { ...integer, minimum: 1, maximum: 1000, default: 1000 }
        }
      },
      response: { 200: { type: "object", properties: { items: { type: "array", items: entrySchema } } } }
    }
  },
  (request, reply) =>
    reply.send({ items: store.list(request.params.namespace, request.query.prefix, request.query.limit) })
)

app.post<{ Body: { operations: ReadonlyArray<Operation>; actor?: string } }>(
  "/api/v1/batch",
  {
    schema: {
      body: {
        type: "object",
        required: ["operations"],
        properties: {
          actor: text,
          operations: {
            type: "array",
            maxItems: 1000,
            items: {
              type: "object",
              required: ["op", "namespace", "key"],
              properties: { op: { enum: ["set", "delete"] }, namespace: text, key: text, value: {} }
            }
          }
        }
      },
      response: {
        200: {
          type: "object",
          properties: {
            ok: { type: "boolean" },
            results: {
              type: "array",
              items: { type: "object", properties: { version: integer, deleted: { type: "boolean" } } }
            }
          }
        }
      }
    }
  },
  (request, reply) =>
    reply.send({ ok: true, results: store.batch(request.body.operations, request.body.actor ?? "api") })
)

app.get<{ Querystring: { tenant: string; after: number; limit: number } }>(
  "/api/v1/changes",
  {
    schema: {
      querystring: {
        type: "object",
        properties: {
          tenant: { ...text, default: "" },
          after: { ...integer, minimum: 0, default: 0 },
          limit: { ...integer, minimum: 1, maximum: 1000, default: 100 }
        }
      },
      response: {
        200: {
          type: "object",
          properties: { changes: { type: "array", items: changeSchema }, lastSeq: integer }
        }
      }
    }
  },
  (request, reply) => {
    const { tenant, after, limit } = request.query
    const changes = store.changes(tenant, after, limit)
    return reply.send({ changes, lastSeq: changes.at(-1)?.seq ?? after })
  }
)

await listen()
