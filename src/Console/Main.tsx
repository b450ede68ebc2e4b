/** The console: starts the page. */
import { render } from "preact"
import { resume } from "./Service/Connection.ts"
import { App } from "./Shell/App.tsx"
import { applyTheme } from "./Widgets/Theme.ts"

applyTheme()
void resume()
render(<App />, document.getElementById("console")!)
