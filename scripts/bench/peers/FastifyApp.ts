/** What both fastify peers have: their schemas, and the check of the credential. */
import { createHash, timingSafeEqual } from "node:crypto"
import Fastify from "fastify"

const digest = (text: string): Buffer => createHash("sha256").update(text).digest()
const expected = digest(`Bearer ${process.env.KV_API_KEY}`)

export const text = { type: "string" } as const
export const integer = { type: "integer" } as const
export const entrySchema = {
  type: "object",
  properties: {
    namespace: text,
    key: text,
    value: {},
    version: integer,
    updatedBy: text,
    updatedAt: integer,
    expiresAt: { type: ["integer", "null"] }
  }
} as const
export const errorSchema = { type: "object", properties: { error: text } } as const
export const entryPath = { type: "object", properties: { namespace: text, key: text } } as const

export interface EntryPath {
  readonly namespace: string
  readonly key: string
}

export const app = Fastify({ logger: false, bodyLimit: 16 * 1024 * 1024, routerOptions: { maxParamLength: 2048 } })

app.addHook("onRequest", async (request, reply) => {
  if (!timingSafeEqual(digest(request.headers.authorization ?? ""), expected)) {
    return reply.code(401).send({ error: "Unauthorized" })
  }
})

/** Serves at the port of the environment. */
export const listen = () => app.listen({ host: "127.0.0.1", port: Number(process.env.PORT) })
