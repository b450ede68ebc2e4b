// Starts the thread that its argument names from its source: a thread does not inherit the loader of its parent. CommonJS
// needs no second thread for the loader and takes half the time.
require("tsx/cjs/api").register()
require(`./${process.argv[2]}.ts`)
