/** The metrics, the alerts and the dashboard, as Prometheus's promtool reads them. */
import { execFile, execFileSync } from "node:child_process"
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { parse as parseYaml } from "yaml"
import { temporaryDirectory } from "../../../TemporaryDirectory.ts"
import { test } from "../../../Tests.ts"
import { dashboard, exposition, page } from "./Fixture.ts"

/** Runs promtool on its standard input. */
const promtool = (args: ReadonlyArray<string>, input: string) =>
  Effect.async<{ readonly code: number; readonly output: string }>(resume => {
    const child = execFile("promtool", args, (error, stdout, stderr) =>
      resume(Effect.succeed({ code: typeof error?.code === "number" ? error.code : 0, output: stdout + stderr }))
    )
    child.stdin?.end(input)
  })

const hasPromtool = ((): boolean => {
  try {
    execFileSync("promtool", ["--version"], { stdio: "ignore" })
    return true
  } catch {
    return false
  }
})()

describe.skipIf(!hasPromtool)("promtool (skipped where it is not installed)", () => {
  test.live("reads the metrics, and warns about milliseconds only", function* () {
    const { code, output } = yield* promtool(["check", "metrics"], yield* exposition)
    // 3 says that there were remarks; what cannot be read is 1.
    assert.include([0, 3], code, output)
    const remarks = output.split("\n").filter(line => line !== "")
    for (const remark of remarks) assert.match(remark, /^\w+_ms metric names should not contain abbreviated units$/)
  })

  test.scopedLive("accepts the alerts, and the dashboard's expressions", function* () {
    const alerts = new URL("../../../../docs/operate/alerts.yml", import.meta.url).pathname
    const checked = yield* promtool(["check", "rules", alerts], "")
    assert.strictEqual(checked.code, 0, checked.output)
    const { expressions } = yield* dashboard
    // What is JSON is YAML too.
    const rules = JSON.stringify({
      groups: [
        {
          name: "dashboard",
          rules: expressions.map((expr, index) => ({
            record: `expression_${index}`,
            expr: expr.replaceAll("$__rate_interval", "5m")
          }))
        }
      ]
    })
    const file = join(yield* temporaryDirectory, "rules.yml")
    writeFileSync(file, rules)
    const read = yield* promtool(["check", "rules", file], "")
    assert.strictEqual(read.code, 0, read.output)
  })
})

const Rules = Schema.Struct({
  groups: Schema.Array(
    Schema.Struct({
      rules: Schema.Array(
        Schema.Struct({
          alert: Schema.String,
          annotations: Schema.Record({ key: Schema.String, value: Schema.String })
        })
      )
    })
  )
})

describe.skipIf(!hasPromtool)(
  "alerts of the disk and of pruning, by promtool (skipped where it is not installed)",
  () => {
    test.scopedLive(
      "come a day before it is full, where the log grows without end or is not pruned, and not otherwise",
      function* () {
        const { groups } = yield* Schema.decodeUnknown(Rules)(parseYaml(page("alerts.yml")))
        const annotationsOf = (alert: string) =>
          groups.flatMap(({ rules }) => rules).find(rule => rule.alert === alert)?.annotations ?? assert.fail(alert)
        const series = (name: string, instance: string, values: string, labels = "") => ({
          series: `${name}{job="causeway", instance="${instance}"${labels}}`,
          values
        })
        const database = ', file="kv.db"'
        /** An alert that fires after some hours, whose text has its labels, and its value in some form. */
        const fires = (
          alertname: string,
          hours: number,
          severity: string,
          labels: Readonly<Record<string, string>>,
          value: Readonly<Record<string, string>> = {}
        ) => {
          const shown = Object.entries(labels).map(([label, text]) => [`$labels.${label}`, text] as const)
          const annotations = Object.entries(annotationsOf(alertname)).map(([name, text]) => [
            name,
            [...shown, ...Object.entries(value)].reduce(
              (text, [word, value]) => text.replace(`{{ ${word} }}`, value),
              text
            )
          ])
          const alert = {
            exp_labels: { severity, job: "causeway", ...labels },
            exp_annotations: Object.fromEntries(annotations)
          }
          return { alertname, eval_time: `${hours * 60}m`, exp_alerts: [alert] }
        }
        const file = join(yield* temporaryDirectory, "disk.yml")
        const tests = [
          {
            interval: "2m",
            input_series: [
              // Of 200 GB 60 are free: on one machine they go in 20 hours, on another they stay.
              series("disk_free_bytes", "filling", "60000000000-100000000x500"),
              series("disk_size_bytes", "filling", "200000000000+0x1300"),
              series("disk_free_bytes", "calm", "60000000000+0x1300"),
              series("disk_size_bytes", "calm", "200000000000+0x1300"),
              series("disk_free_bytes", "small", "400000000+0x1300"),
              series("disk_size_bytes", "small", "2000000000+0x1300"),
              // 2 GB that grow by 144 MB a day, and by a tenth of it.
              series("database_file_bytes", "filling", "2000000000+200000x1300", database),
              series("database_file_bytes", "calm", "2000000000+20000x1300", database),
              // Two nodes see one unused slot, which one of them has seen for longer, and a dump of 20 minutes.
              series("postgres_vacuum_held_back_seconds", "one", "0+120x1300", ', holder="slot"'),
              series("postgres_vacuum_held_back_seconds", "other", "0x100 0+120x1200", ', holder="slot"'),
              series("postgres_vacuum_held_back_seconds", "one", "0+120x10 0x1290", ', holder="session"'),
              ...Object.entries({ changes: [300_000, 200_000], entries: [300_000, 400_000], nodes: [9, 2] }).flatMap(
                ([table, [dead, live]]) => [
                  series("postgres_table_rows", "one", `${dead}x1300`, `, table="${table}", state="dead"`),
                  series("postgres_table_rows", "one", `${live}x1300`, `, table="${table}", state="live"`)
                ]
              ),
              // Retention fails each minute; expiry has failed for a minute, when the database was restarted.
              series("store_housekeeping_failures_total", "one", "0+2x1300", ', task="retention"'),
              series("store_housekeeping_failures_total", "one", "0x100 60x1200", ', task="expiry"')
            ],
            alert_rule_test: [
              fires("CausewayDiskFillsSoon", 8, "warning", { instance: "filling" }),
              fires(
                "CausewayDiskNearlyFull",
                1,
                "critical",
                { instance: "small" },
                { "$value | humanize1024": "381.5Mi" }
              ),
              fires("CausewayStoreGrows", 40, "info", { instance: "filling", file: "kv.db" }),
              fires(
                "CausewayVacuumHeldBack",
                4,
                "warning",
                { holder: "slot" },
                { "$value | humanizeDuration": "4h 0m 0s" }
              ),
              fires("CausewayDeadRows", 2, "warning", { table: "changes" }),
              // Twelve minutes after expiry has failed.
              fires("CausewayHousekeepingFails", 3.6, "warning", { instance: "one", task: "retention" })
            ]
          }
        ]
        const rules = new URL("../../../../docs/operate/alerts.yml", import.meta.url).pathname
        writeFileSync(file, JSON.stringify({ rule_files: [rules], evaluation_interval: "5m", tests }))
        const { code, output } = yield* promtool(["test", "rules", file], "")
        assert.strictEqual(code, 0, output)
      }
    )
  }
)
