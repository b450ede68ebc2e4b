// Starts the thread from its source, as a thread does not inherit the loader of the one that starts it.
// As CommonJS, which spares it a second thread for the loader and half of the time.
require("tsx/cjs/api").register()
require("./Thread.ts")
