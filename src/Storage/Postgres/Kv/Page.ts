/**
 * Pages of entries and of changes. The database prints them, as their readers need JSON text.
 */

/** The last `seq` of the log. */
export const lastSeq = "coalesce((SELECT max(seq) FROM causeway.changes), 0)"

/** What `toJson` of an entry prints. */
export const printedEntry = `concat('{"namespace":', to_json(namespace), ',"key":', to_json(key), ',"value":', value,
  ',"version":', version, ',"updatedBy":', to_json(updated_by), ',"updatedAt":', updated_at, ',"expiresAt":',
  coalesce(expires_at::text, 'null'), '}')`

/** What `encodeWithoutValue` of an entry prints. */
export const printedKey = `concat('{"namespace":', to_json(namespace), ',"key":', to_json(key), ',"version":', version,
  ',"updatedBy":', to_json(updated_by), ',"updatedAt":', updated_at, ',"expiresAt":',
  coalesce(expires_at::text, 'null'), '}')`

/** What `encode` of a change prints. */
export const printedChange = `concat('{"seq":', seq, ',"op":"', op, '","namespace":', to_json(namespace), ',"key":',
  to_json(key), ',"value":', coalesce(value, 'null'), ',"version":', version, ',"actor":', to_json(actor),
  ',"timestamp":', timestamp, ',"tenantId":', to_json(tenant), '}')`

/** Between the texts of a page: it occurs in no JSON text. */
export const separator = "\u001e"

/**
 * The texts of a page in one column, which costs less than a row for each, and how many rows there are. Texts end with
 * the one with which the values come to so many bytes. Sizes are known without reading the values.
 */
export const page = (printed: string, order: string, rows: string, size: string): string =>
  `SELECT string_agg(json, U&'\\001e') AS texts, count(*) AS selected FROM (
    SELECT CASE WHEN total - bytes < ${size} THEN ${printed} END AS json FROM (
      SELECT *, sum(bytes) OVER (ORDER BY ${order} ROWS UNBOUNDED PRECEDING) AS total FROM (
        SELECT *, coalesce(octet_length(value), 0)::bigint AS bytes ${rows} ORDER BY ${order} LIMIT $1
      ) selected
    ) summed ORDER BY ${order}
  ) printed`

/** The texts of a page, and whether it was cut short for its size. */
export const textsOf = (
  texts: unknown,
  selected: unknown
): { readonly texts: Array<string>; readonly isCut: boolean } => {
  const all = texts === null ? [] : (texts as string).split(separator)
  return { texts: all, isCut: (selected as number) > all.length }
}

/** No key holds it, but what a list is to come after may. */
const nul = "\u0000"

/**
 * The greatest text without U+0000 that is not greater, so that the same keys come after it: the database takes no
 * U+0000.
 */
export const floor = (key: string): string => {
  const at = key.indexOf(nul)
  return at === -1 ? key : key.slice(0, at)
}

/** The least text without U+0000 that is not less, so that the same keys come before it. */
export const ceiling = (key: string): string => {
  const at = key.indexOf(nul)
  return at === -1 ? key : `${key.slice(0, at)}\u0001`
}
