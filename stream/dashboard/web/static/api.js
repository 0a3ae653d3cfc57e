// Client of the JSON API.

/** Return the decoded response; throws an Error with the detail of the problem. */
export async function ask(path, query = {}, options = {}) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query))
    for (const each of Array.isArray(value) ? value : [value])
      if (each !== null && each !== undefined && each !== "") parameters.append(name, each);
  const url = parameters.size ? `${path}?${parameters}` : path;
  const response = await fetch(url, { headers: { Accept: "application/json" }, ...options });
  const body = await response.json().catch(() => ({ detail: `the response (status ${response.status}) is not JSON` }));
  // No session, or it expired: log in, and return with the same filters.
  if (response.status === 401 && location.pathname !== "/login") {
    const to = location.pathname === "/" ? "" : `?to=${location.pathname.slice(1)}`;
    location.assign(`/login${to}${location.hash}`);
  }
  if (!response.ok) throw new Error(body.detail ?? `status ${response.status}`);
  return body;
}

export const post = (path, body) =>
  ask(path, {}, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
