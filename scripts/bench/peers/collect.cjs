/* Loaded before a server whose live memory is to be seen: it collects garbage when it is asked to. */
process.on("SIGUSR2", () => globalThis.gc?.())
