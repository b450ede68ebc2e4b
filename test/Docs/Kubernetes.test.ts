/**
 * Whether the examples for Kubernetes are what its API takes: values by its schemas, and names of members by the types
 * that are generated from them, as the API itself drops members that it does not know.
 */
import { execFile } from "node:child_process"
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import { assert, describe } from "@effect/vitest"
import { Effect } from "effect"
import { parseAllDocuments } from "yaml"
import { test } from "../Tests.ts"

const root = fileURLToPath(new URL("../../", import.meta.url))

interface Resource {
  readonly apiVersion: string
  readonly kind: string
}

type Models = Readonly<Record<string, new (resource: Resource) => { readonly validate: () => void }>>

/** The module that describes a kind of resources. */
const moduleOf = ({ apiVersion, kind }: Resource): string => `kubernetes-models/${apiVersion}/${kind}`

const resourcesOf = (yaml: string): ReadonlyArray<Resource> =>
  parseAllDocuments(yaml).map(document => {
    assert.deepStrictEqual(document.errors, [])
    return document.toJS()
  })

/** What the schemas have against values. */
const problemsOf = (resources: ReadonlyArray<Resource>) =>
  Effect.promise(async () => {
    const problems: Array<string> = []
    for (const resource of resources) {
      const models: Models = await import(moduleOf(resource))
      try {
        new models[resource.kind]!(resource).validate()
      } catch (error) {
        problems.push(`${resource.kind}: ${error}`)
      }
    }
    return problems
  })

/** What the compiler has against resources that are written as literals, of which it knows all members. */
const typeErrorsOf = (resources: ReadonlyArray<Resource>) =>
  Effect.gen(function* () {
    const directory = yield* Effect.acquireRelease(
      Effect.sync(() => mkdtempSync(join(root, "node_modules", ".kubernetes-"))),
      directory => Effect.sync(() => rmSync(directory, { recursive: true }))
    )
    const declarations = resources.map((resource, index) => {
      const type = `import(${JSON.stringify(moduleOf(resource))}).I${resource.kind}`
      return `export const resource${index}: ${type} = ${JSON.stringify(resource, undefined, 1)}\n`
    })
    writeFileSync(join(directory, "resources.ts"), declarations.join(""))
    const options = "--noEmit --strict --skipLibCheck --module nodenext --target es2024 --types --ignoreConfig"
    return yield* Effect.promise(async () => {
      const tsc = join(root, "node_modules", "typescript", "bin", "tsc")
      const run = promisify(execFile)(process.execPath, [tsc, ...options.split(" "), "resources.ts"], {
        cwd: directory
      })
      return await run.then(({ stdout }) => stdout).catch(({ stdout }) => String(stdout))
    })
  })

describe("The examples for Kubernetes", () => {
  const read = (file: string) => resourcesOf(readFileSync(join(root, "deploy", file), "utf8"))

  test.scopedLive("have the members and values that its API takes", function* () {
    const all = [...read("kubernetes.yaml"), ...read("kubernetes-postgresql.yaml")]
    assert.isAtLeast(all.length, 5)
    assert.deepStrictEqual(yield* problemsOf(all), [])
    assert.strictEqual(yield* typeErrorsOf(all), "")
  })

  test.scopedLive("are looked at closely enough to find a wrong value and a misspelled member", function* () {
    const text = readFileSync(join(root, "deploy", "kubernetes.yaml"), "utf8")
    const wrong = resourcesOf(text.replace("replicas: 1", "replicas: one"))
    assert.match((yield* problemsOf(wrong)).join(), /replicas/)
    const misspelled = resourcesOf(text.replace("failureThreshold: 6", "failureTreshold: 6"))
    assert.deepStrictEqual(yield* problemsOf(misspelled), [])
    assert.match(yield* typeErrorsOf(misspelled), /failureTreshold/)
  })
})
