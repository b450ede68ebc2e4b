/* Loaded before a server whose live memory is measured: it collects garbage on SIGUSR2. */
process.on("SIGUSR2", () => globalThis.gc?.())
