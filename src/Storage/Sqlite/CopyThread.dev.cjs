// Starts the thread from its source, as WriterThread.dev.cjs does.
require("tsx/cjs/api").register()
require("./CopyThread.ts")
