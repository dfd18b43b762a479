"use strict";
(() => {
  const root = document.documentElement;
  const themes = { auto: "as the system", light: "light", dark: "dark" };
  const button = document.getElementById("theme");
  let theme = "auto";
  try { theme = localStorage.getItem("unlazy-theme") || "auto"; } catch { /* a page from disk may have no memory */ }
  const wear = () => {
    if (!(theme in themes)) theme = "auto";
    if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme;
    button.textContent = `Theme: ${themes[theme]}`;
  };
  button.addEventListener("click", () => {
    const names = Object.keys(themes);
    theme = names[(names.indexOf(theme) + 1) % names.length];
    try { localStorage.setItem("unlazy-theme", theme); } catch { /* then it is forgotten */ }
    wear();
  });
  button.hidden = false;
  wear();

  // Coordinates are pairs of 16-bit numbers, in tenths of a pixel.
  const path = (kind, text) => {
    const raw = atob(text);
    const at = (i) => (raw.charCodeAt(i) | (raw.charCodeAt(i + 1) << 8)) / 10;
    let d = "";
    for (let i = 0; i < raw.length; i += 4)
      d += kind === "dots" ? `M${at(i)} ${at(i + 2)}h0` : `${i ? "L" : "M"}${at(i)} ${at(i + 2)}`;
    return d;
  };

  for (const reel of document.querySelectorAll(".reel")) {
    const { times, tracks } = JSON.parse(reel.querySelector("script").textContent);
    const bar = reel.querySelector(".slider");
    const [play, input, output] = ["button", "input", "output"].map((name) => bar.querySelector(name));
    const drawn = reel.querySelectorAll(".track");
    const show = () => {
      const frame = Number(input.value);
      tracks.forEach((track, i) => {
        if (track.kind === "picture") drawn[i].setAttribute("href", `data:image/png;base64,${track.frames[frame]}`);
        else drawn[i].setAttribute("d", path(track.kind, track.frames[frame]));
      });
      output.textContent = `t = ${times[frame]}`;
      input.setAttribute("aria-valuetext", `t = ${times[frame]}`);
    };
    let timer = 0;
    const stop = () => { clearInterval(timer); timer = 0; play.textContent = "Play"; };
    play.addEventListener("click", () => {
      if (timer) return stop();
      if (Number(input.value) === times.length - 1) input.value = 0;
      play.textContent = "Stop";
      show();
      timer = setInterval(() => {
        input.value = Number(input.value) + 1;
        show();
        if (Number(input.value) === times.length - 1) stop();
      }, 400);
    });
    input.addEventListener("input", () => { if (timer) stop(); show(); });
    input.setAttribute("aria-valuetext", `t = ${times[times.length - 1]}`);
    bar.hidden = false;
  }

  // A click on the head of a column sorts the rows: numbers by value, other cells as text.
  const key = (cell) => {
    const text = cell.dataset.value ?? cell.textContent.trim();
    return text !== "" && !Number.isNaN(Number(text)) ? Number(text) : text;
  };
  const order = (a, b, up) => {
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1; // what has no value comes last
    return (a < b ? -1 : Number(a > b)) * (up ? 1 : -1);
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.querySelectorAll("th")];
    heads.forEach((head, column) => {
      const press = document.createElement("button");
      press.type = "button";
      press.append(...head.childNodes);
      head.append(press);
      press.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const body = table.tBodies[0];
        const rows = [...body.rows].map((row) => [key(row.cells[column]), row]);
        rows.sort(([a], [b]) => order(a, b, up));
        body.append(...rows.map(([, row]) => row));
      });
    });
  }
})();
