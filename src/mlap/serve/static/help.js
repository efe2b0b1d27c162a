// The API, with examples that can be copied as they are.
import { el } from "./dom.js";

export function help(root, about) {
  const server = location.origin;
  const list = (count) => `[${about.example.slice(0, count).map((text) => JSON.stringify(text)).join(", ")}]`;
  const inputs = list(2);
  const example = (title, text) => [el("h3", {}, title), el("pre", { tabIndex: 0 }, el("code", {}, text))];
  root.append(el("div", { className: "card prose" },
    el("h2", {}, "The same answers for programs"),
    el("p", {}, "Everything on this page comes from a JSON API on this machine. It is described in ",
      el("a", { href: "/api/openapi.json" }, "OpenAPI"), "."),
    ...example("Predict", `curl -s ${server}/api/predict \\
  -H 'Content-Type: application/json' \\
  -d '{"inputs": ${inputs}}'`),
    ...(about.explains ? example("Explain", `curl -s ${server}/api/explain \\
  -H 'Content-Type: application/json' \\
  -d '{"inputs": ${list(1)}}'`) : []),
    ...example("In Python", `import json
from urllib.request import Request, urlopen

question = json.dumps({"inputs": ${inputs}}).encode()
request = Request("${server}/api/predict", question, {"Content-Type": "application/json"})
for answer in json.load(urlopen(request))["answers"]:
    print(answer["name"], answer["sentence"])`),
    ...(about.molecules ? example("Upload a table, wait for it, take it back", `tables=${server}/api/tables
id=$(curl -s "$tables?name=molecules.csv" -H 'Content-Type: text/csv' --data-binary @molecules.csv |
  sed 's/.*"id":"\\([^"]*\\)".*/\\1/')
until curl -s "$tables/$id" | grep '"finished":true'; do sleep 1; done
curl -s "$tables/$id/predictions.csv" > predictions.csv
curl -s -X DELETE "$tables/$id"`) : []),
    el("p", { className: "soft" },
      `One question holds up to ${about.limits.inputs.toLocaleString("en")} graphs, one explanation up to ` +
      `${about.limits.explained}. A molecule may have ${about.limits.atoms} atoms, an upload ` +
      `${Math.round(about.limits.upload / 1e6)} MB and ${about.limits.rows.toLocaleString("en")} rows. ` +
      "A busy server answers 503 and says in Retry-After when to come again.")));
  return {};
}
