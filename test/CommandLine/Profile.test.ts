import { chmodSync, writeFileSync } from "node:fs"
import { syncBuiltinESMExports } from "node:module"
import os from "node:os"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { ConfigProvider, Effect, Option } from "effect"
import * as Profile from "../../src/CommandLine/Profile.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"

/** A user without an entry in the database of users, for example in a container. */
const unknownUser = Effect.acquireRelease(
  Effect.sync(() => {
    const { homedir, userInfo } = os
    const unknown = (): never => {
      throw new Error("uv_os_homedir returned ENOENT (no such file or directory)")
    }
    Object.assign(os, { homedir: unknown, userInfo: unknown })
    syncBuiltinESMExports()
    return { homedir, userInfo }
  }),
  known =>
    Effect.sync(() => {
      Object.assign(os, known)
      syncBuiltinESMExports()
    })
)

const withEnvironment = (variables: Readonly<Record<string, string>>) =>
  Effect.withConfigProvider(ConfigProvider.fromMap(new Map(Object.entries(variables))))

describe("profiles of a user that the system does not know", () => {
  it.scoped("are looked for below the root, and read where they are named", () =>
    Effect.gen(function* () {
      const file = join(yield* temporaryDirectory, "profiles.json")
      writeFileSync(file, '{"default":{"url":"http://127.0.0.1:1"}}')
      chmodSync(file, 0o600)
      yield* unknownUser
      assert.strictEqual(yield* withEnvironment({})(Profile.path), "/.config/causeway/profiles.json")
      const found = yield* withEnvironment({ CAUSEWAY_PROFILES: file })(Profile.load(Option.none()))
      assert.deepStrictEqual(found, { url: "http://127.0.0.1:1" })
    })
  )
})

describe("profiles that cannot be reached", () => {
  it.scoped("are none, unless one is named", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      const file = join(directory, "file")
      writeFileSync(file, "")
      const below = withEnvironment({ CAUSEWAY_PROFILES: join(file, "profiles.json") })
      assert.deepStrictEqual(yield* below(Profile.load(Option.none())), {})
      const { message } = yield* Effect.flip(below(Profile.load(Option.some("mine"))))
      assert.include(message, 'There is no profile "mine"')
    })
  )

  it.scoped.skipIf(process.getuid?.() !== 0)("as in the home of another user, stop no command", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      writeFileSync(join(directory, "profiles.json"), '{"default":{"url":"http://127.0.0.1:1"}}', { mode: 0o600 })
      chmodSync(directory, 0o700)
      yield* Effect.acquireRelease(
        Effect.sync(() => process.seteuid?.(65534)),
        () => Effect.sync(() => process.seteuid?.(0))
      )
      const there = withEnvironment({ CAUSEWAY_PROFILES: join(directory, "profiles.json") })
      assert.deepStrictEqual(yield* there(Profile.load(Option.none())), {})
      const { message } = yield* Effect.flip(there(Profile.load(Option.some("mine"))))
      assert.match(message, /profiles\.json cannot be read: EACCES/)
    })
  )
})
