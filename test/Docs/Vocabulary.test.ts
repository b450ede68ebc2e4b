/** Words that are not plain technical English, or that have a usual term, are not used in code, tests and documents. */
import { readdirSync, readFileSync, statSync } from "node:fs"
import { describe, expect, it } from "vitest"
import { root } from "./Page.ts"

/** What is searched for, in whole words of any case, and what to write instead. The parts of an identifier are words. */
const replacements: ReadonlyArray<readonly [words: string, instead: string]> = [
  ["told|tells?|telling", "reports, returns, notifies, says, sends, receives; distinguished (told apart)"],
  ["nobody", "no client, no process, none"],
  ["somebody", "a client, another process"],
  ["whoever", "a client that, a process that"],
  ["anybody|everybody", "any caller, all"],
  ["meanwhile", "in the meantime, while …, since then"],
  ["anew", "again, from the start"],
  ["(?:go|goes|going|gone|went) on", "continues, resumes"],
  ["no more(?=[.,;:)])", "no longer; nothing else"],
  ["in vain", "without effect"],
  ["time is over|(?:is|are|was|were) over(?=[.,;:)])", "has expired, has ended"],
  ["for ever", "forever, without a limit"],
  ["lies", "is stored, is"],
  ["mend|mends|mended|mending", "fixes, repairs"],
  ["became of", "the outcome of"],
  ["lets? go", "releases"],
  ["whom", "two sentences"],
  ["(?:is|are|be|was|were|been|has|have|had) begun", "has started"],
  ["(?:has|have|had) gone", "has disconnected, has been removed, has stopped"],
  ["(?:is|are|was|were|be|been) away", "is unavailable, is unreachable"],
  ["(?:is|are|was|were) there(?=[.,;:)])", "exists, is present, is available"],
  ["(?:come|comes|coming|came) back", "returns, recovers"],
  ["the other side", "the peer, the client, the server"],
  ["stands(?! (?:in )?for)", "is, appears"],
  ["strayed", "misplaced, unknown"],
  ["beside", "next to, in addition to, with, during"],
  ["but for", "except"]
]

/** Text in which such a word is right: a name, or a sentence of another program. */
const exceptions: ReadonlyArray<string> = ['"nobody"', '"nobody\'s"', "isOver"]

/** Lock files, generated documents, and this file. */
const excluded = /^test\/(?:golden\/|Docs\/Vocabulary\.test\.ts$)|package-lock\.json$/

const isText = (file: string): boolean =>
  /\.(?:tsx?|[cm]?js|c|css|html|json|md|ya?ml|cfg|service)$|\/(?:Dockerfile|run|smoke)$/.test(file)

const pattern = new RegExp(replacements.map(([words]) => `\\b(${words})\\b`).join("|"), "giu")

interface Finding {
  readonly word: string
  readonly instead: string
}

/** The words of a line that have a better one. */
const findingsIn = (line: string): ReadonlyArray<Finding> => {
  const text = exceptions
    .reduce((rest, exception) => rest.replaceAll(exception, ""), line)
    .replace(/([a-z\d])([A-Z])/g, "$1 $2")
  return [...text.matchAll(pattern)].map(([word, ...groups]) => ({
    word,
    instead: replacements[groups.findIndex(group => group !== undefined)]?.[1] ?? ""
  }))
}

const filesUnder = (path: string): ReadonlyArray<string> => {
  if (!statSync(`${root}${path}`).isDirectory()) return [path]
  return readdirSync(`${root}${path}`)
    .filter(name => !["node_modules", "dist"].includes(name))
    .flatMap(name => filesUnder(`${path}/${name}`))
}

const files: ReadonlyArray<string> = ["src", "test", "scripts", "docs", "deploy", ".ci", "README.md", "CONTRIBUTING.md"]
  .flatMap(filesUnder)
  .filter(file => isText(file) && !excluded.test(file))

describe("the vocabulary", () => {
  it("is that of plain technical English", () => {
    const found = files.flatMap(file =>
      readFileSync(`${root}${file}`, "utf8")
        .split("\n")
        .flatMap((line, index) =>
          findingsIn(line).map(({ instead, word }) => `${file}:${index + 1} "${word}", write: ${instead}`)
        )
    )
    expect(found).toStrictEqual([])
  })

  it("finds words in prose and in names, and no part of a longer word", () => {
    const wordsOf = (line: string) => findingsIn(line).map(({ word }) => word)
    expect(wordsOf("// Nobody is told: the entry is there.")).toStrictEqual(["Nobody", "told", "is there"])
    expect(wordsOf("const isTold = tellAll()")).toStrictEqual(["Told", "tell"])
    expect(wordsOf('a storyteller of "nobody" stands for an understanding')).toStrictEqual([])
  })
})
