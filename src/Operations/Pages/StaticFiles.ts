/** The built files of web pages, and their compressed forms. */
import { createHash } from "node:crypto"
import { readFile } from "node:fs/promises"
import { Effect, Option } from "effect"

/** The content codings, and the file suffixes of the compressed forms. */
const codings = [
  { coding: "br", suffix: ".br" },
  { coding: "gzip", suffix: ".gz" }
] as const

type Coding = (typeof codings)[number]["coding"]

/** A file in one of its forms. */
export interface StaticFile {
  readonly body: Uint8Array
  readonly contentType: string
  /** A strong entity tag, which differs for each form. */
  readonly etag: string
  readonly coding: Coding | undefined
}

const contentTypes: Readonly<Record<string, string>> = {
  css: "text/css; charset=utf-8",
  html: "text/html; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  json: "application/json",
  svg: "image/svg+xml",
  txt: "text/plain; charset=utf-8",
  woff2: "font/woff2"
}

/** The names of built files. Names that leave the directory or are too long do not match. */
const fileName = /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}\.([a-z0-9]{1,9})$/

const etagOf = (body: Uint8Array): string => `"${createHash("sha256").update(body).digest("base64url").slice(0, 22)}"`

const read = (url: URL): Effect.Effect<Option.Option<Uint8Array>> =>
  Effect.map(
    Effect.promise(() =>
      readFile(url).catch((error: NodeJS.ErrnoException) => {
        if (error.code === "ENOENT") return undefined
        throw error
      })
    ),
    Option.fromNullable
  )

/** A file with another body. */
export const changed = (file: StaticFile, body: Uint8Array): StaticFile => ({ ...file, body, etag: etagOf(body) })

/** The files of a directory. */
export interface StaticFiles {
  /** A file in the best form by the weights of the codings; `None` if no file has the name. */
  readonly file: (name: string, weights: ReadonlyMap<string, number>) => Effect.Effect<Option.Option<StaticFile>>
}

/** The files of a built directory. Each file is cached when it is first requested. */
export const make = (directory: URL): StaticFiles => {
  // Unknown names are not cached, so that requests cannot make the cache grow.
  const known = new Map<string, StaticFile>()

  const load = (name: string, suffix: string, coding: Coding | undefined, contentType: string) =>
    Effect.suspend(() => {
      const found = known.get(name + suffix)
      if (found !== undefined) return Effect.succeedSome(found)
      return Effect.map(
        read(new URL(name + suffix, directory)),
        Option.map(body => {
          const file: StaticFile = { body, contentType, coding, etag: etagOf(body) }
          known.set(name + suffix, file)
          return file
        })
      )
    })

  return {
    file: (name, weights) =>
      Effect.gen(function* () {
        const contentType = contentTypes[fileName.exec(name)?.[1] ?? ""]
        if (contentType === undefined) return Option.none()
        for (const { coding, suffix } of codings) {
          if (!weights.get(coding)) continue
          const compressed = yield* load(name, suffix, coding, contentType)
          if (Option.isSome(compressed)) return compressed
        }
        return yield* load(name, "", undefined, contentType)
      })
  }
}
