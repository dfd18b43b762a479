"use strict";
(() => {
  const main = document.getElementById("jobs");
  const news = document.getElementById("news");
  const look = async () => {
    let words = "Updated every two seconds.";
    try {
      const answer = await fetch("/jobs", { cache: "no-store" });
      const text = await answer.text();
      if (answer.ok) main.innerHTML = text; // the server has escaped all names, and this page runs no script but this one
      else words = text;
    } catch {
      words = "The command has ended: this page is no longer updated.";
    }
    if (news.textContent !== words) news.textContent = words;
    setTimeout(look, 2000);
  };
  setTimeout(look, 2000);
})();
