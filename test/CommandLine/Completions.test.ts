/** Completions, in the shells that they are for. */
import { execFileSync } from "node:child_process"
import { chmodSync, existsSync, mkdirSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import type { Shell } from "../../src/CommandLine/Tree.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import { call } from "./InProcess.ts"

/** What a shell offers for each of some lines, at their ends. */
type Complete = (lines: ReadonlyArray<string>) => ReadonlyArray<ReadonlyArray<string>>

/** How a shell is asked. */
interface Asking {
  /** Where docs/use/cli.md puts the completions, below the home directory. */
  readonly file: string
  /** What else the user has there. */
  readonly files: Readonly<Record<string, string>>
  readonly complete: (run: (args: ReadonlyArray<string>) => string, home: string) => Complete
}

const wordsOf = (text: string): ReadonlyArray<string> => text.split(/\s+/).filter(word => word !== "")

const bash: Asking = {
  file: ".local/share/bash-completion/completions/causeway",
  files: {
    // What readline does for a key.
    "complete.bash": `
source "$HOME/.local/share/bash-completion/completions/causeway"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_causeway
printf '%s\\n' "\${COMPREPLY[@]}"
`
  },
  complete: (run, home) => lines =>
    lines.map(line => wordsOf(run(["-u", join(home, "complete.bash"), ...line.split(" ")])))
}

const zsh: Asking = {
  file: ".zfunc/_causeway",
  files: {
    ".zshrc": `
fpath+=~/.zfunc
autoload -Uz compinit && compinit -u
PS1='ready> '
# A key prints what would be offered in place of offering it.
gather() {
  compadd() {
    # Such a call of a function of completions asks for words, and offers none.
    if [[ \${@[1,(i)(-|--)]} == *-(O|A|D)\\ * ]]; then builtin compadd "$@"; return; fi
    local -a found
    builtin compadd -A found "$@"
    offers+=("\${found[@]}")
    builtin compadd "$@"
  }
  _main_complete
  compstate[insert]='' compstate[list]=''
  unfunction compadd
}
zle -C gather complete-word gather
report() {
  typeset -gaU offers=()
  zle gather
  print -r -- "<<$offers>>"
  BUFFER=''
}
zle -N report
bindkey '^T' report
`,
    // Types lines into a shell at a pseudo-terminal, and prints what that prints.
    "complete.zsh": `
zmodload zsh/zpty || exit 1
zpty shell 'zsh --no-globalrcs -i'
until_shown() {
  local text=''
  zpty -r shell text "$1" || { print -ru2 -- "The shell has ended: $text"; exit 1; }
  print -r -- "$text"
}
until_shown '*ready> *'
for line in "$@"; do
  zpty -w -n shell "$line"$'\\x14'
  until_shown '*<<*>>*'
done
`
  },
  complete: (run, home) => lines =>
    [...run(["-f", join(home, "complete.zsh"), ...lines]).matchAll(/<<(.*?)>>/gs)].map(([, words = ""]) =>
      wordsOf(words)
    )
}

const fish: Asking = {
  file: ".config/fish/completions/causeway.fish",
  files: {},
  complete: run => lines =>
    lines.map(line =>
      run(["-c", "complete -C $argv[1]", line])
        .split("\n")
        .filter(offer => offer !== "")
        .map(offer => offer.split("\t")[0] ?? "")
    )
}

const shells: ReadonlyArray<readonly [Shell, Asking]> = [
  ["bash", bash],
  ["zsh", zsh],
  ["fish", fish]
]

const isThere = (program: string): boolean =>
  (process.env.PATH ?? "").split(":").some(directory => existsSync(join(directory, program)))

/** A home directory with the completions of a shell, and a program `causeway`, which is not run. */
const homeOf = (shell: Shell, { file, files }: Asking) =>
  Effect.gen(function* () {
    const home = yield* temporaryDirectory
    const { stdout } = yield* call(["--completions", shell])
    for (const [name, text] of Object.entries({ ...files, [file]: stdout, "bin/causeway": "#!/bin/sh\n" })) {
      mkdirSync(dirname(join(home, name)), { recursive: true })
      writeFileSync(join(home, name), text)
    }
    chmodSync(join(home, "bin", "causeway"), 0o755)
    mkdirSync(join(home, "empty"))
    return home
  })

describe("completions", () => {
  for (const [shell, asking] of shells) {
    const isMissing = !isThere(shell)
    it.scopedLive.skipIf(isMissing)(
      `of ${shell} are names of commands and options at every place, and none that is refused${
        isMissing ? `, skipped: no ${shell}` : ""
      }`,
      () =>
        Effect.gen(function* () {
          const home = yield* homeOf(shell, asking)
          const run = (args: ReadonlyArray<string>) =>
            execFileSync(shell, args, {
              encoding: "utf8",
              // Files are offered too.
              cwd: join(home, "empty"),
              env: { HOME: home, PATH: `${join(home, "bin")}:${process.env.PATH}`, TERM: "xterm", LANG: "C.UTF-8" }
            })
          const complete = asking.complete(run, home)
          const expected: ReadonlyArray<readonly [string, ReadonlyArray<string>]> = [
            ["causeway k", ["kv"]],
            ["causeway kv de", ["delete"]],
            ["causeway kv ", ["delete", "get", "list", "namespaces", "set", "watch"]],
            ["causeway --url http://localhost kv get n --v", ["--value-only"]],
            ["causeway migrate-store --f", ["--from"]],
            ["causeway sessions tail --e", ["--epoch"]],
            ["causeway --comp", ["--completions"]],
            ["causeway kv get k", []]
          ]
          const offered = complete(expected.map(([line]) => line)).map((words, index) => {
            const [line = ""] = expected[index] ?? []
            // fish offers options only after a dash, the other shells always.
            return [line, words.filter(word => / -\S*$/.test(line) || !word.startsWith("-")).sort()]
          })
          assert.deepStrictEqual<unknown>(offered, expected)
          const places = ["kv set", "sessions list", "export", "chat"]
          for (const options of complete(places.map(place => `causeway ${place} --`))) {
            assert.includeMembers([...options], ["--help", "--url"])
            assert.notIncludeMembers([...options], ["--version", "--completions", "--wizard", "--log-level"])
          }
        })
    )
  }
})
