/** The API reference: starts the page. */
import { render } from "preact"
import { applyTheme } from "../Widgets/Theme.ts"
import { resume } from "./Descriptions.ts"
import { Page } from "./Page.tsx"

applyTheme()
resume()
render(<Page />, document.getElementById("reference")!)
