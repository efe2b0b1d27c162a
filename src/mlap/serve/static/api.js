// Questions to the server. A refusal is an error whose message is written for people.

export class Refusal extends Error {
  constructor(status, message, field) {
    super(message);
    this.status = status;
    this.field = field;
  }
}

/** The server's answer; a refusal is thrown. */
async function answer(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Refusal(0, "The server does not answer. Is it still running?");
  }
  if (response.ok) return response;
  const content = await response.json().catch(() => ({ message: `The server answered ${response.status}.` }));
  throw new Refusal(response.status, content.message, content.field);
}

const ask = async (path, options) => (await answer(path, options)).json();

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

/** The picture itself, as text. */
export const drawn = async (input) => (await answer(picture(input))).text();
