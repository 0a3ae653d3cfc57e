// Exchanges the token for an HttpOnly session cookie.
import { post } from "./api.js";
import { by } from "./dom.js";

const PAGES = ["host", "cluster"]; // beside the overview; nothing else is followed
const wanted = new URLSearchParams(location.search).get("to");
const to = PAGES.includes(wanted) ? wanted : "";

by("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    await post("/api/v1/session", { token: by("token").value });
    location.replace(`/${to}${location.hash}`); // the hash holds the filters
  } catch (error) {
    by("refused").textContent = error.message;
    by("token").select();
  }
});
