// An origin on Node.js that reports what each request has spent: `node.mjs express` and `node.mjs express4`
// route with Express 5 and 4, `node.mjs url` by the path of `new URL`. Prints its port; exits at the end of its input.
import { createRequire } from "node:module";
import { createServer } from "node:http";

const costs = { "/search": 4, "/caf%C3%A9": 5 };

function spend(response, units) {
  response.setHeader("X-API-Cost", String(units));
  response.end("page");
}

function expressHandler(version) {
  const express = createRequire(process.env.MODULES + "/")(version);
  const app = express();
  app.set("query parser", "extended");
  for (const [path, units] of Object.entries(costs)) app.get(path, (_, response) => spend(response, units));
  app.get("/item/:id", (_, response) => spend(response, 1));
  app.get("/list", (request, response) => spend(response, request.query.page === undefined ? 0 : 3));
  app.use("/use", (_, response) => spend(response, 2));
  app.use((_, response) => spend(response, 0));
  return app;
}

function urlHandler(request, response) {
  const { pathname, searchParams } = new URL(request.url, "http://localhost");
  if (costs[pathname]) return spend(response, costs[pathname]);
  if (/^\/item\/[^/]+$/.test(pathname)) return spend(response, 1);
  if (pathname === "/use" || pathname.startsWith("/use/")) return spend(response, 2);
  return spend(response, pathname === "/list" && searchParams.has("page") ? 3 : 0);
}

// A target that `new URL` rejects spends nothing.
function guarded(handler) {
  return (request, response) => {
    try {
      handler(request, response);
    } catch {
      spend(response, 0);
    }
  };
}

process.stdin.resume().on("end", () => process.exit());
const framework = process.argv[2];
const server = createServer(framework === "url" ? guarded(urlHandler) : expressHandler(framework));
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
