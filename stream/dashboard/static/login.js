// Exchanging the token for a cookie that no script can read.
import { post } from "./api.js";
import { by } from "./dom.js";

by("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    await post("/api/v1/session", { token: by("token").value });
    location.replace(`/${location.hash}`); // the filters stand behind the hash
  } catch (error) {
    by("refused").textContent = error.message;
    by("token").select();
  }
});
