/** A mebibyte, in bytes. */
export const MiB = 1024 * 1024
