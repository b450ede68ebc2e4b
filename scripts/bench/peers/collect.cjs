/*
 * Loaded before a server whose live memory is measured: SIGUSR2 collects garbage. The collection is V8's last resort, the
 * only one after which V8 also returns the pages that it keeps for its next young generation.
 */
process.on("SIGUSR2", () => globalThis.gc?.({ type: "major", execution: "sync", flavor: "last-resort" }))
