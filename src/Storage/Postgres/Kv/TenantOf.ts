/** SQL for `Kv/Entry.tenantOf` of a column. */
export const tenantOf = (namespace: string): string =>
  `CASE WHEN starts_with(${namespace}, 'tenant:') THEN split_part(substr(${namespace}, 8), '/', 1) ELSE '' END`
