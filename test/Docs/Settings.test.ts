/** Whether the JSON and YAML of pages are what they are said to be. */
import { execFileSync } from "node:child_process"
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { Either, Schema } from "effect"
import { expect, it } from "vitest"
import { parse } from "yaml"
import { version } from "../../src/base/Version.ts"
import * as Connection from "../../src/CommandLine/Connection.ts"
import { Report } from "../../src/Operations/Health/Api.ts"
import { fencesOf, isRunnable, pages, read } from "./Page.ts"

const blocks = (page: string, language: string): ReadonlyArray<string> =>
  fencesOf(page).flatMap(fence => (fence.language === language ? [fence.code] : []))

it("pages install the package by its path, as it is in no registry, and name its version", () => {
  const named = pages.flatMap(page => [...read(page).matchAll(/causewayd-(\d[\w.]*)\.tgz/g)].map(([, found]) => found))
  expect(new Set(named)).toEqual(new Set([version]))
  for (const page of pages) expect(read(page), page).not.toMatch(/npm (?:install|i|add|exec)\b.* causewayd?(?:@|\s|$)/m)
})

it("docs/use/cli.md shows a file of profiles", () => {
  const [profiles = "", ...others] = blocks("docs/use/cli.md", "json")
  expect(others).toEqual([])
  expect(Object.keys(Either.getOrThrow(Connection.parseProfiles("profiles.json", profiles)))).toContain("default")
})

it("docs/operate/observability.md shows a report of health and a line of the log", () => {
  const [report = "", line = "", ...others] = blocks("docs/operate/observability.md", "json")
  expect(others).toEqual([])
  const decode = Schema.decodeUnknownEither(Schema.parseJson(Report), { onExcessProperty: "error" })
  expect(Either.isRight(decode(report)), String(decode(report))).toBe(true)
  const { annotations, ...rest } = JSON.parse(line)
  expect(Object.keys(rest)).toEqual(["level", "message", "timestamp", "fiber"])
  expect(annotations).toEqual(expect.objectContaining({ requestId: expect.any(String), traceId: expect.any(String) }))
})

/** Has a program check a file of settings, where there is such a program. */
const check = (
  settings: string,
  program: string,
  flag: string,
  args: (file: string) => ReadonlyArray<string>
): void => {
  if (!isRunnable(program, flag)) return
  const directory = mkdtempSync(join(tmpdir(), "causeway-docs-"))
  try {
    const file = join(directory, "settings")
    writeFileSync(file, settings)
    execFileSync(program, args(file), { stdio: "pipe" })
  } finally {
    rmSync(directory, { recursive: true })
  }
}

it("docs/operate/observability.md has settings for Prometheus", () => {
  const [settings = "", ...others] = blocks("docs/operate/observability.md", "yaml")
  expect(others).toEqual([])
  const { scrape_configs: jobs }: { readonly scrape_configs: ReadonlyArray<{ readonly job_name: string }> } =
    parse(settings)
  // The alerts ask for this job.
  expect(jobs.map(({ job_name }) => job_name)).toEqual(["causeway"])
  check(settings, "promtool", "--version", file => ["check", "config", "--syntax-only", file])
})

it("docs/use/how-to.md has settings for nginx, by which polls outlast no time-out", () => {
  const [settings = "", ...others] = blocks("docs/use/how-to.md", "nginx")
  expect(others).toEqual([])
  for (const [, seconds] of settings.matchAll(/proxy_(?:read|send)_timeout (\d+)s;/g)) {
    expect(Number(seconds)).toBeGreaterThan(60)
  }
  // With a path behind the address, nginx decodes that of the request.
  expect(settings).toMatch(/proxy_pass http:\/\/causeway;/)
  expect(settings.match(/\{/g)).toHaveLength(settings.match(/\}/g)?.length ?? 0)
  for (const line of settings.split("\n")) expect(line).toMatch(/^\s*(?:#.*|[^;{}]*[;{]|\})?$/)
  // Nothing of the machine's own nginx is needed or touched.
  const own = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(name => `${name}_temp_path temporary-${name};\n`)
  const whole = `pid nginx.pid;\nevents {}\nhttp {\naccess_log off;\n${own.join("")}${settings}}\n`
  check(whole, "nginx", "-v", file => ["-t", "-e", "stderr", "-p", dirname(file), "-c", file])
})

/** Has a shell read a command without running it. */
const parseCommand = (command: string): void => {
  execFileSync("sh", ["-n", "-c", command], { stdio: "pipe" })
}

/** What a command leaves of 50 backups, one an hour, and of one that was killed. */
const leftBy = (command: string): ReadonlyArray<string> => {
  const directory = mkdtempSync(join(tmpdir(), "causeway-docs-"))
  try {
    const names = Array.from({ length: 50 }, (_, hour) => {
      const [day, time] = new Date(Date.UTC(2026, 0, 1, hour)).toISOString().split(/[T:]/)
      return `causeway-${day}-${time}00`
    })
    for (const name of [...names, "causeway-2026-01-01-0100.0af3.part"]) mkdirSync(join(directory, name))
    execFileSync("sh", ["-c", command.replaceAll("/var/backups", directory)], { stdio: "pipe" })
    return readdirSync(directory).sort()
  } finally {
    rmSync(directory, { recursive: true })
  }
}

const expectNewest = (left: ReadonlyArray<string>): void => {
  expect(left).toHaveLength(48)
  expect([left[0], left.at(-1)]).toEqual(["causeway-2026-01-01-0200", "causeway-2026-01-03-0100"])
}

it("docs/operate/operations.md has units of systemd that make backups, and keep the newest", () => {
  const [units = "", ...others] = blocks("docs/operate/operations.md", "ini")
  expect(others).toEqual([])
  const [service = "", timer = ""] = units
    .split(/^# \/etc\/systemd\/system\/causeway-backup\.(?:service|timer)$/m)
    .slice(1)
  const settings = (unit: string) =>
    unit
      .split("\n")
      .filter(line => line !== "")
      .map(line => {
        const [, section, name = "", value = ""] = /^(?:\[(\w+)\]|(\w+)=(.+))$/.exec(line) ?? []
        expect(section ?? name, line).not.toBe("")
        return section === undefined ? ([name, value] as const) : ([section, ""] as const)
      })
  const commands = settings(service).filter(([name]) => name.startsWith("ExecStart"))
  expect(commands[0]?.[1]).toContain("main.js backup ")
  // A percent sign is doubled in a unit.
  for (const [, command] of commands) parseCommand(command.replaceAll("%%", "%"))
  expect(commands.map(([name]) => name)).toEqual(["ExecStart", "ExecStartPost"])
  expectNewest(leftBy(commands[1]?.[1] ?? ""))
  expect(settings(timer).map(([name]) => name)).toEqual(["Timer", "OnCalendar", "Persistent", "Install", "WantedBy"])
})

it("docs/operate/operations.md has a line for cron that makes backups, and keeps the newest", () => {
  const [line = "", ...others] = blocks("docs/operate/operations.md", "crontab")
  expect(others).toEqual([])
  const [, command = ""] = /^(?:[\d*,/-]+ ){5}(.+)\n$/.exec(line) ?? []
  expect(command).toContain("causeway backup ")
  // cron takes a percent sign for the end of the command, unless it is escaped.
  expect(command).not.toMatch(/(?<!\\)%/)
  parseCommand(command.replaceAll("\\%", "%"))
  const [, prune = ""] = /causeway backup \S+ -u \+\S+ && (.+)$/.exec(command) ?? []
  expectNewest(leftBy(prune))
})
