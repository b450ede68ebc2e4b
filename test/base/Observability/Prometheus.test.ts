import { assert, describe, it } from "@effect/vitest"
import { Chunk, Effect, FastCheck as fc, Metric, MetricBoundaries, MetricLabel } from "effect"
import * as Metrics from "../../../src/base/Observability/Metrics.ts"
import * as MetricTags from "../../../src/base/Observability/MetricTags.ts"
import * as LabelValues from "../../../src/base/Observability/MetricTags.ts"
import * as Samples from "../../../src/base/Observability/Samples.ts"
import { test } from "../../Tests.ts"

const gauge = (name: string, labels: Readonly<Record<string, string>>, value: number): Samples.Sample => ({
  name,
  description: "",
  labels,
  kind: "gauge",
  value
})

/** Reads one line back as a scraper would. */
const parse = (line: string) => {
  const found = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$/s.exec(line)
  assert.isNotNull(found, line)
  const [, name, inner = "", value] = found!
  const labels: Record<string, string> = {}
  const rest = inner.replace(
    /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)/g,
    (_, label, text: string) => {
      labels[label] = text.replace(/\\(.)/g, (_, escaped) => (escaped === "n" ? "\n" : escaped))
      return ""
    }
  )
  assert.strictEqual(rest, "", line)
  return { name, labels, value }
}

describe("Prometheus", () => {
  it("escapes labels so that a scraper reads them back", () => {
    const nasty = fc.stringOf(fc.constantFrom("a", '"', "\\", "\n", "{", "}", ",", "=", " ", "é"))
    fc.assert(
      fc.property(nasty, nasty, (a, b) => {
        const [head, ...lines] = Samples.toPrometheus([gauge("g", { a, b }, 1)]).split("\n")
        assert.strictEqual(head, "# TYPE g gauge")
        assert.deepStrictEqual(lines.slice(1), [""])
        assert.deepStrictEqual(parse(lines[0]!), { name: "g", labels: { a, b }, value: "1" })
      })
    )
  })

  it("makes any name a valid one", () => {
    fc.assert(
      fc.property(fc.string({ minLength: 1 }), fc.string({ minLength: 1 }), (name, label) => {
        const [, line] = Samples.toPrometheus([gauge(name, { [label]: "x" }, 1)]).split("\n")
        parse(line!)
      })
    )
  })

  it("prints histograms with cumulative buckets", () => {
    const text = Samples.toPrometheus([
      {
        name: "h",
        description: "How\nlong \\ often",
        kind: "histogram",
        labels: { le: "mine" },
        value: {
          count: 3,
          sum: 10.5,
          buckets: [
            { le: 1, count: 1 },
            { le: Number.POSITIVE_INFINITY, count: 3 }
          ]
        }
      }
    ])
    assert.strictEqual(
      text,
      [
        "# HELP h How\\nlong \\\\ often",
        "# TYPE h histogram",
        'h_bucket{exported_le="mine",le="1"} 1',
        'h_bucket{exported_le="mine",le="+Inf"} 3',
        'h_sum{exported_le="mine"} 10.5',
        'h_count{exported_le="mine"} 3',
        ""
      ].join("\n")
    )
  })

  it("prints each name once, with one kind, and each series once", () => {
    const counter: Samples.Sample = { name: "a.b", description: "", labels: {}, kind: "counter", value: 1 }
    const samples = [
      gauge("a_b", {}, 1),
      counter,
      gauge("a b", {}, 2),
      gauge("c", {}, Number.NaN),
      gauge("a_b", { x: "1" }, 3)
    ]
    assert.strictEqual(Samples.toPrometheus(samples), '# TYPE a_b gauge\na_b 1\na_b{x="1"} 3\n# TYPE c gauge\nc NaN\n')
    assert.strictEqual(Samples.toPrometheus([]), "")
  })
})

describe("Metrics", () => {
  it.effect("shows every kind of Effect's metrics in both formats", () =>
    Effect.gen(function* () {
      const labels = [MetricLabel.make("who", 'a "b"')]
      const label = <Type, In, Out>(metric: Metric.Metric<Type, In, Out>) => Metric.taggedWithLabels(metric, labels)
      const histogram = label(Metric.histogram("test_ms", MetricBoundaries.fromIterable([1, 10])))
      yield* Metric.incrementBy(label(Metric.counter("test_total", { description: "All tests" })), 2)
      yield* Metric.incrementBy(Metric.counter("test_big", { bigint: true }), 5n)
      yield* Metric.set(label(Metric.gauge("test_now")), -1.5)
      yield* Metric.update(Metric.frequency("test_words"), "yes")
      yield* Metric.update(
        Metric.summary({
          name: "test_s",
          maxAge: "1 day",
          maxSize: 9,
          error: 0,
          quantiles: Chunk.toArray(Chunk.of(0.5))
        }),
        7
      )
      for (const value of [0.5, 1, 5, 100]) yield* Metric.update(histogram, value)

      const metrics = yield* Metrics.Metrics
      const text = yield* metrics.prometheus
      for (const line of [
        "# HELP test_total All tests",
        "# TYPE test_total counter",
        'test_total{who="a \\"b\\""} 2',
        "test_big 5",
        'test_now{who="a \\"b\\""} -1.5',
        'test_words{value="yes"} 1',
        "test_s_sum 7",
        "test_s_count 1",
        'test_ms_bucket{who="a \\"b\\"",le="1"} 2',
        'test_ms_bucket{who="a \\"b\\"",le="10"} 3',
        'test_ms_bucket{who="a \\"b\\"",le="+Inf"} 4',
        'test_ms_sum{who="a \\"b\\""} 106.5',
        'test_ms_count{who="a \\"b\\""} 4'
      ]) {
        assert.include(text, `${line}\n`)
      }
      assert.notInclude(text, "effect_fiber")
      assert.match(text, /^process_heap_used_bytes \d+$/m)

      const { metrics: samples } = JSON.parse(yield* metrics.json)
      assert.deepInclude(samples, {
        name: "test_ms",
        kind: "histogram",
        labels: { who: 'a "b"' },
        value: {
          count: 4,
          sum: 106.5,
          buckets: [
            { le: 1, count: 2 },
            { le: 10, count: 3 },
            { le: "+Inf", count: 4 }
          ]
        }
      })
      assert.deepInclude(samples, { name: "test_big", kind: "counter", labels: {}, value: 5 })
    }).pipe(Effect.provide(Metrics.layer))
  )
})

const series = (name: string) =>
  Effect.map(Metric.snapshot, pairs =>
    Object.fromEntries(
      Samples.fromSnapshot(pairs, MetricTags.none).flatMap(sample =>
        sample.name === name ? [[sample.labels.type, sample.value]] : []
      )
    )
  )

describe("label values", () => {
  it("are bounded, and keep their values", () => {
    fc.assert(
      fc.property(fc.array(fc.string()), fc.integer({ min: 0, max: 5 }), (values, most) => {
        const label = new LabelValues.LabelValues(most)
        const shown = values.map(value => label.of(value))
        assert.isAtMost(new Set(shown.filter(value => value !== LabelValues.other)).size, most)
        for (const [index, value] of values.entries()) {
          assert.include([value, LabelValues.other], shown[index])
          if (shown[index] !== LabelValues.other) assert.strictEqual(label.of(value), value)
        }
      })
    )
    assert.strictEqual(new LabelValues.LabelValues().of("x".repeat(65)), LabelValues.other)
  })

  test.effect("of a counter share one series above the bound; nothing is lost", function* () {
    const counter = LabelValues.counter("test_labelled_total", { label: "type", description: "Tests.", most: 2 })
    counter.register([], MetricTags.none)
    assert.deepStrictEqual(yield* series("test_labelled_total"), { other: 0 })
    for (let index = 0; index < 100; index++) counter.increment(`type${index}`, MetricTags.none)
    counter.increment("type1", MetricTags.none)
    assert.deepStrictEqual(yield* series("test_labelled_total"), { type0: 1, type1: 2, other: 98 })
  })
})
