// Questions to the server. A refusal is an error whose message is written for people.

export class Refusal extends Error {
  constructor(status, message, field) {
    super(message);
    this.status = status;
    this.field = field;
  }
}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Refusal(0, "The server does not answer. Is it still running?");
  }
  if (response.status === 204) return null;
  const content = await response.json().catch(() => ({ message: `The server answered ${response.status}.` }));
  if (!response.ok) throw new Refusal(response.status, content.message, content.field);
  return content;
}

export const get = (path, query = {}) => ask(`${path}?${new URLSearchParams(query)}`);

export const post = (path, body) =>
  ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

export const upload = (file) =>
  ask(`/api/tables?${new URLSearchParams({ name: file.name })}`, {
    method: "POST",
    headers: { "Content-Type": "text/csv" },
    body: file,
  });

/** The address of a picture of a graph. */
export const picture = (input) => `/api/picture?${new URLSearchParams({ input })}`;
