/** The web pages of the service: their sources, and the HTML that loads them. */

import { posix } from "node:path"

/** The directories of their sources, by those of the pages in `dist`. */
export const pages = { console: "src/Console", docs: "src/Console/Reference", chat: "src/ChatPage" } as const

export type PageName = keyof typeof pages

/** The title of each, its style sheet in addition to the one that all share, and the element that its script fills. */
const parts: Readonly<Record<PageName, readonly [title: string, style: string, element: string]>> = {
  console: ["Causeway console", "style.css", "console"],
  docs: ["API reference · Causeway", "reference.css", "reference"],
  chat: ["Chat · Causeway", "chat.css", "chat"]
}

/** The HTML of a page, which refers to its sources. `__ROUTES__` is where the service writes the routes. */
export const htmlOf = (name: PageName): string => {
  const [title, style, element] = parts[name]
  const shared = posix.relative(pages[name], "src/Console") || "."
  return `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <meta name="color-scheme" content="light dark" />
    <meta name="causeway-routes" content="__ROUTES__" />
    <title>${title}</title>
    <link rel="icon" type="image/svg+xml" href="${shared}/icon.svg" />
    <link rel="stylesheet" href="${shared}/base.css" />
    <link rel="stylesheet" href="./${style}" />
    <script type="module" src="./Main.tsx"></script>
  </head>
  <body>
    <noscript>This page needs JavaScript.</noscript>
    <div id="${element}"></div>
  </body>
</html>
`
}
