/**
 * SQL that several functions and statements share: the form of functions, names, what prints entries and changes as
 * JSON, whose readers need JSON text, and pages of such texts.
 */

/** The settings of a function whose plans do without these ways to read a table. */
export const without = (...scans: ReadonlyArray<string>): string =>
  [...scans.map(scan => `SET enable_${scan} = off`), "SET jit = off"].join(" ")

/** Rows are looked up by an index each, whatever the statistics say. */
export const byIndex = without("seqscan", "hashjoin", "mergejoin")

/** Rows are found by their addresses. */
export const byAddress = without("seqscan", "indexscan", "bitmapscan")

/** The plan does not depend on the parameters, and is made once. */
export const generic = "SET plan_cache_mode = force_generic_plan"

/** A function of the schema: its name with parameters and result, its properties and settings, and its body. */
export const plpgsql =
  (signature: string, ...properties: ReadonlyArray<string>) =>
  (body: TemplateStringsArray, ...values: ReadonlyArray<string | number>): string =>
    `CREATE FUNCTION causeway.${signature} LANGUAGE plpgsql ${properties.join(" ")} AS $function$` +
    `${String.raw(body, ...values)}$function$`

/** A text of 16 hexadecimal digits that no log and no history has had. */
export const newEpoch = "left(replace(gen_random_uuid()::text, '-', ''), 16)"

export const readPosition = (name: string, into: string): string =>
  `SELECT p.id, p.up_to INTO ${into} FROM causeway.positions p WHERE p.name = '${name}' ORDER BY p.id DESC LIMIT 1;`

/** SQL for `Kv/Entry.tenantOf` of a column. */
export const tenantOf = (namespace: string): string =>
  `CASE WHEN starts_with(${namespace}, 'tenant:') THEN split_part(substr(${namespace}, 8), '/', 1) ELSE '' END`

/** SQL for the entries of a namespace without pending changes. */
export const baseEntries = (namespace: string): string =>
  `coalesce((SELECT b.entries FROM causeway.base_namespaces b WHERE b.namespace = ${namespace}), 0)`

/** SQL for the change in the number of namespaces of a tenant when one that has `before` entries gets `more`. */
export const comeOrGone = (before: string, more: string): string =>
  `CASE WHEN ${before} + ${more} > 0 THEN 1 ELSE 0 END - CASE WHEN ${before} > 0 THEN 1 ELSE 0 END`

/** SQL for the last `seq` of the log. */
export const lastSeq = "coalesce((SELECT max(seq) FROM causeway.changes), 0)"

/** SQL for the position of expiry. A statement reads it once, in its snapshot. */
export const expiryPosition = "(SELECT causeway.position('expiry'))"

/** An SQL condition for entries that have expired at `now` and are still stored. */
export const isDue = (now: string): string => `expires_at > ${expiryPosition} AND expires_at <= ${now}`

const printed = (value: string): string =>
  `concat('{"namespace":', to_json(namespace), ',"key":', to_json(key), ${value} ',"version":', version, ',"updatedBy":',
  to_json(updated_by), ',"updatedAt":', updated_at, ',"expiresAt":', coalesce(expires_at::text, 'null'), '}')`

/** SQL that prints an entry as `toJson` does, and without its value as `encodeWithoutValue` does. */
export const printedEntry = printed(`',"value":', value,`)
export const printedKey = printed("")

/** SQL that prints a change as `encode` does. */
export const printedChange = `concat('{"seq":', seq, ',"op":"', op, '","namespace":', to_json(namespace), ',"key":',
  to_json(key), ',"value":', coalesce(value, 'null'), ',"version":', version, ',"actor":', to_json(actor),
  ',"timestamp":', timestamp, ',"tenantId":', to_json(tenant), '}')`

/** The separator of the texts of a page. It occurs in no JSON text. */
export const separator = "\u001e"

/**
 * SQL for a page: its texts in one column, which costs less than a row for each, and the number of selected rows. The
 * texts end with the one at which the values reach `size` bytes. The server knows sizes without reading the values.
 */
export const page = (printed: string, order: string, rows: string, size: string): string =>
  `SELECT string_agg(json, U&'\\001e') AS texts, count(*) AS selected FROM (
    SELECT CASE WHEN total - bytes < ${size} THEN ${printed} END AS json FROM (
      SELECT *, sum(bytes) OVER (ORDER BY ${order} ROWS UNBOUNDED PRECEDING) AS total FROM (
        SELECT *, coalesce(octet_length(value), 0)::bigint AS bytes ${rows} ORDER BY ${order} LIMIT $1
      ) selected
    ) summed ORDER BY ${order}
  ) printed`

/** Decodes the texts of a page, and whether the page was cut for its size. */
export const textsOf = (
  texts: unknown,
  selected: unknown
): { readonly texts: Array<string>; readonly isCut: boolean } => {
  const all = texts === null ? [] : (texts as string).split(separator)
  return { texts: all, isCut: (selected as number) > all.length }
}

/**
 * Returns the greatest text without U+0000 that is not greater than `key`. The same keys come after it. Keys do not
 * contain U+0000, but the position of a list may, and the database does not accept it.
 */
export const floor = (key: string): string => key.split("\u0000", 1)[0]!

/** Returns the least text without U+0000 that is not less than `key`. The same keys come before it. */
export const ceiling = (key: string): string => (key.includes("\u0000") ? `${floor(key)}\u0001` : key)
