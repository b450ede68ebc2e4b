/** Formats numbers with the digits that were measured. */

const significant = (value: number, digits: number): string =>
  Number.isFinite(value)
    ? Number(value.toPrecision(digits)).toLocaleString("en", { maximumFractionDigits: 6, useGrouping: true })
    : "–"

export const plain = (value: number): string => significant(value, 3)

export const milliseconds = (value: number | undefined): string => (value === undefined ? "–" : `${plain(value)} ms`)

export const micros = (value: number): string => `${plain(value)} µs`

export const percent = (share: number): string => `${Math.round(share * 100)} %`

/** A median ratio with the minimum and the maximum. */
export const range = (middle: number, values: ReadonlyArray<number>): string =>
  values.length < 2
    ? `${middle.toFixed(2)} ×`
    : `${middle.toFixed(2)} × (${Math.min(...values).toFixed(2)} to ${Math.max(...values).toFixed(2)})`
