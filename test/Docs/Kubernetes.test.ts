/**
 * Whether the examples for Kubernetes are what its API takes: values by its schemas, and names of members by the types that
 * are generated from them, as the API itself drops members that it does not know.
 */
import { execFile } from "node:child_process"
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { Deployment } from "kubernetes-models/apps/v1/Deployment"
import { StatefulSet } from "kubernetes-models/apps/v1/StatefulSet"
import { PodDisruptionBudget } from "kubernetes-models/policy/v1/PodDisruptionBudget"
import { Service } from "kubernetes-models/v1/Service"
import { parseAllDocuments } from "yaml"

const root = fileURLToPath(new URL("../../", import.meta.url))

interface Resource {
  readonly apiVersion: string
  readonly kind: string
}

/** The kinds of resources that the examples may have, by the module that describes each. */
const kinds = {
  "kubernetes-models/v1/Service": Service,
  "kubernetes-models/apps/v1/Deployment": Deployment,
  "kubernetes-models/apps/v1/StatefulSet": StatefulSet,
  "kubernetes-models/policy/v1/PodDisruptionBudget": PodDisruptionBudget
}

const resourcesOf = (yaml: string): ReadonlyArray<Resource> =>
  parseAllDocuments(yaml).map(document => {
    assert.deepStrictEqual(document.errors, [])
    return document.toJS()
  })

/** What the schemas have against values. */
const problemsOf = (resource: Resource): ReadonlyArray<string> => {
  const Model = kinds[moduleOf(resource) as keyof typeof kinds]
  if (Model === undefined) return [`${resource.apiVersion} ${resource.kind} is not known`]
  try {
    new Model(resource as never).validate()
    return []
  } catch (error) {
    return [String(error)]
  }
}

const moduleOf = ({ apiVersion, kind }: Resource): string => `kubernetes-models/${apiVersion}/${kind}`

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

  it.scopedLive("have the members and values that its API takes", () =>
    Effect.gen(function* () {
      const all = [...read("kubernetes.yaml"), ...read("kubernetes-postgresql.yaml")]
      assert.isAtLeast(all.length, 5)
      assert.deepStrictEqual(all.flatMap(problemsOf), [])
      assert.strictEqual(yield* typeErrorsOf(all), "")
    })
  )

  it.scopedLive("are looked at closely enough to find a wrong value and a misspelled member", () =>
    Effect.gen(function* () {
      const text = readFileSync(join(root, "deploy", "kubernetes.yaml"), "utf8")
      const wrong = resourcesOf(text.replace("replicas: 1", "replicas: one"))
      assert.match(wrong.flatMap(problemsOf).join("\n"), /replicas/)
      const misspelled = resourcesOf(text.replace("failureThreshold: 6", "failureTreshold: 6"))
      assert.deepStrictEqual(misspelled.flatMap(problemsOf), [])
      assert.match(yield* typeErrorsOf(misspelled), /failureTreshold/)
    })
  )
})
