// Sweeps: the page has the numbers of all runs, and this draws those that are asked for.
(() => {
  const SMALL = [240, 190], LARGE = [440, 250], MOST = 24, FEW = 8, ROWS = 250;
  const DASHES = ["", "6 3", "7 2 1.5 2", "1.5 2", "6 1.5 1.5 1.5 1.5 1.5", "1 1", "10 3"];
  const svg = (name, given = {}, ...inside) => fill(document.createElementNS("http://www.w3.org/2000/svg", name), given, inside);
  const html = (name, given = {}, ...inside) => fill(document.createElement(name), given, inside);
  const fill = (made, given, inside) => {
    for (const [key, value] of Object.entries(given)) made.setAttribute(key, value);
    made.append(...inside);
    return made;
  };
  const unpack = (text) => {
    const raw = atob(text), bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i += 1) bytes[i] = raw.charCodeAt(i);
    return new Float32Array(bytes.buffer);
  };
  // As %.4g: 0.0001235, 12.5, 1.25e-07.
  const g = (value, digits = 4) => {
    if (value === 0 || !Number.isFinite(value)) return value === 0 ? "0" : "not finite";
    const [mantissa, power] = value.toExponential(digits - 1).split("e");
    if (Number(power) >= -4 && Number(power) < digits) return String(Number(value.toPrecision(digits)));
    return `${Number(mantissa)}e${power[0]}${power.slice(1).padStart(2, "0")}`;
  };
  const tick = (value) => g(value, 5).replace(/e([+-])0*(\d)/, (_, sign, power) => `e${sign === "-" ? "-" : ""}${power}`);
  const evenly = (count, most) => {
    if (count <= most) return [...Array(count).keys()];
    return [...new Set([...Array(most).keys()].map((i) => Math.round((i * (count - 1)) / (most - 1))))];
  };
  // Between blue, green and orange of the palette, so that it follows the theme.
  const shade = (share) => {
    const [from, to, part] = share < 0.5 ? [1, 3, 2 * share] : [3, 6, 2 * share - 1];
    return `color-mix(in oklab, var(--c${from}), var(--c${to}) ${Math.round(100 * part)}%)`;
  };

  // An axis from numbers to pixels, and its ticks.
  const axis = (low, high, size, log, flip) => {
    if (!(low <= high)) [low, high] = [0, 1];
    const to = log ? Math.log10 : (x) => x;
    let [a, b] = [to(low), to(high)];
    const room = 0.04 * (b - a) || Math.max(Math.abs(a), 1) * 0.1;
    [a, b] = [a - room, b + room];
    const at = (x) => { const share = (to(x) - a) / (b - a); return size * (flip ? 1 - share : share); };
    const ticks = [];
    if (log && b - a >= 1) {
      const step = Math.max(1, Math.ceil((b - a) / 5));
      for (let k = Math.ceil(a / step) * step; k <= b; k += step) ticks.push(10 ** k);
    } else {
      const [from, until] = log ? [10 ** a, 10 ** b] : [a, b];
      const raw = (until - from) / 4, ten = 10 ** Math.floor(Math.log10(raw));
      const step = ten * ([1, 2, 5, 10].find((k) => k * ten >= raw) ?? 10);
      for (let k = Math.ceil(from / step); k * step <= until; k += 1) ticks.push(k * step);
    }
    return { at, ticks: ticks.map((x) => [at(x), tick(x)]) };
  };
  const span = (values, log) => {
    let low = Infinity, high = -Infinity;
    for (const value of values)
      if (Number.isFinite(value) && (!log || value > 0)) { low = Math.min(low, value); high = Math.max(high, value); }
    return [low, high];
  };
  const frame = ([wide, high], x, y, xLabel, yLabel, words, right = 0) => {
    const left = 22 + 5.8 * Math.max(4, ...y.map(([, text]) => text.length));
    const made = svg("svg", { class: "film", viewBox: `${-left} -6 ${wide + left + 14 + right} ${high + 46}`, role: "img", "aria-label": words });
    for (const [place, text] of x) {
      made.append(svg("path", { class: "tick", d: `M${place} 0V${high}` }));
      made.append(svg("text", { x: place, y: high + 13, "text-anchor": "middle" }, text));
    }
    for (const [place, text] of y) {
      made.append(svg("path", { class: "tick", d: `M0 ${place}H${wide}` }));
      made.append(svg("text", { x: -5, y: place + 3, "text-anchor": "end" }, text));
    }
    made.append(svg("text", { x: wide / 2, y: high + 30, "text-anchor": "middle" }, xLabel));
    made.append(svg("text", { transform: `translate(${10 - left} ${high / 2}) rotate(-90)`, "text-anchor": "middle" }, yLabel));
    return made;
  };
  const box = ([width, height], kind = "frame") => svg("rect", { class: kind, x: 0, y: 0, width, height });

  const choice = (bar, label, names, chosen, change) => {
    const select = html("select", { "aria-label": label }, ...names.map(([value, text]) => html("option", { value }, text)));
    select.value = chosen;
    select.addEventListener("change", change);
    if (names.length > 1) bar.append(html("label", {}, `${label} `, select));
    return select;
  };

  const draw = (article) => {
    const place = article.querySelector(".drawn");
    if (!place.hidden) return;
    const data = JSON.parse(article.querySelector("script").textContent);
    const { fields, probes, frames, points } = data;
    for (const probe of probes)
      for (const part of ["mean", "low", "high"]) if (probe[part]) probe[part] = unpack(probe[part]);
    const each = data.each && unpack(data.each);
    const named = Object.fromEntries(fields.map((field) => [field.name, field]));
    const length = (probe) => probe.mean.length / points;
    const time = (point, frame) => (each ? each[point * frames + frame] : data.times[frame]);
    const told = (frame) => (each ? `observation ${frame + 1} of ${frames}` : `t = ${g(data.times[frame], 4)}`);

    // ---------------------------------------------------------------- curves
    const curves = () => {
      const timed = probes.filter((probe) => length(probe) > 1);
      if (frames < 2 || !timed.length) return;
      const bar = html("div", { class: "slider" }), key = html("p", { class: "key" }), films = html("div", { class: "films" });
      const note = html("p", { class: "quiet made" });
      const redraw = () => {
        const probe = timed[Number(which.value)], colour = named[by.value], facet = named[side.value];
        const positive = each ? each.filter((t) => t > 0) : data.times.filter((t) => t > 0);
        const [first, last] = span(positive, true), slow = last > 100 * first;
        const [left, right] = slow ? [first, last] : span(each ?? data.times, false);
        const panes = facet ? evenly(facet.values.length, MOST) : [0], size = panes.length > 1 ? SMALL : LARGE;
        const x = axis(left, right, size[0], slow), y = axis(...heights(probe, slow), size[1], probe.log, true);
        films.replaceChildren(...panes.map((pane) => {
          const here = [];
          for (let i = 0; i < points; i += 1) if (data.seeds[i] && (!facet || facet.codes[i] === pane)) here.push(i);
          const title = facet ? `${facet.short} = ${facet.values[pane]}` : "";
          const words = `${probe.label} against time, ${here.length} curves${colour ? ` coloured by ${colour.name}` : ""}${title && `, ${title}`}.`;
          const made = frame(size, x.ticks, y.ticks, "t", probe.label, words);
          lines(made, probe, colour, here, x, y, slow);
          made.append(box(size));
          return html("div", {}, html("h5", {}, title || probe.name), made);
        }));
        films.classList.toggle("single", panes.length === 1);
        legend(key, colour);
        const most = Math.max(...panes.map((pane) => (facet ? facet.codes.filter((code) => code === pane).length : points)));
        note.textContent = "A curve is the mean over the seeds of a run."
          + (most > 30 ? " Thick curves are medians over the runs of one colour." : "")
          + (most <= FEW && probe.low ? " Bands span the seeds." : "")
          + (facet && facet.values.length > MOST ? ` ${MOST} of ${facet.values.length} values of ${facet.name} are shown.` : "");
      };
      const heights = (probe, slow) => {
        const from = slow && !each && data.times[0] <= 0 ? 1 : 0, some = [];
        for (let i = 0; i < points; i += 1) for (let k = from; k < frames; k += 1) some.push(probe.mean[i * frames + k]);
        return span(some, probe.log);
      };
      const lines = (made, probe, colour, here, x, y, slow) => {
        const good = (point, k, value) => Number.isFinite(value) && (!probe.log || value > 0) && (!slow || time(point, k) > 0);
        const run = (point, values, offset) => {
          let d = "", pen = "M";
          for (let k = 0; k < frames; k += 1) {
            const value = values[offset + k];
            if (!good(point, k, value)) { pen = "M"; continue; }
            d += `${pen}${x.at(time(point, k)).toFixed(1)} ${y.at(value).toFixed(1)}`;
            pen = "L";
          }
          return d;
        };
        const groups = new Map();
        for (const point of here) {
          const code = colour ? colour.codes[point] : 0;
          if (!groups.has(code)) groups.set(code, []);
          groups.get(code).push(point);
        }
        const many = here.length > 30;
        for (const [code, members] of [...groups].sort(([a], [b]) => a - b)) {
          const { stroke, dash } = style(colour, code);
          const look = `stroke:${stroke};stroke-dasharray:${many ? "" : dash}`;
          if (here.length <= FEW && probe.low)
            for (const point of members) {
              const up = run(point, probe.high, point * frames), down = run(point, probe.low, point * frames);
              if (up.split("M").length === 2 && down.split("M").length === 2)
                made.append(svg("path", { d: `${up}L${down.slice(1).split("L").reverse().join("L")}Z`, style: `fill:${stroke};opacity:.15` }));
            }
          const d = members.map((point) => run(point, probe.mean, point * frames)).join("");
          made.append(svg("path", { class: many ? "line thin" : "line", style: look, d }));
          if (many && members.length > 2 && !each) {
            const middle = new Float32Array(frames);
            for (let k = 0; k < frames; k += 1) {
              const some = members.map((point) => probe.mean[point * frames + k]).filter(Number.isFinite).sort((a, b) => a - b);
              const half = some.length / 2;
              middle[k] = some.length ? (some[Math.floor(half - 0.25)] + some[Math.floor(half)]) / 2 : NaN;
            }
            made.append(svg("path", { class: "line halo", d: run(0, middle, 0) }), svg("path", { class: "line median", style: `stroke:${stroke};stroke-dasharray:${dash}`, d: run(0, middle, 0) }));
          }
        }
      };
      const which = choice(bar, "Probe", timed.map((one, i) => [i, one.name]), 0, redraw);
      const options = [["", "none"], ...fields.map((one) => [one.name, one.name])];
      const by = choice(bar, "Colour", options, data.colour ?? "", redraw);
      const side = choice(bar, "Plots side by side", options, data.facet ?? "", redraw);
      place.append(html("h4", {}, "Curves"), bar, key, films, note);
      redraw();
    };
    const style = (colour, code) => {
      if (!colour) return { stroke: "var(--c1)", dash: "" };
      if (colour.values.length <= 7) return { stroke: `var(--c${code})`, dash: DASHES[code] };
      return { stroke: shade(code / (colour.values.length - 1)), dash: "" };
    };
    const legend = (key, colour) => {
      key.replaceChildren();
      if (!colour) return;
      key.append(html("span", { class: "quiet" }, `${colour.name}:`));
      for (const code of evenly(colour.values.length, 7)) {
        const { stroke, dash } = style(colour, code);
        const mark = svg("svg", { viewBox: "0 0 28 8", "aria-hidden": "true" }, svg("path", { class: "line median", d: "M0 4H28", style: `stroke:${stroke};stroke-dasharray:${dash}` }));
        key.append(html("span", {}, mark, ` ${colour.values[code]}`));
      }
    };

    // ---------------------------------------------------------------- maps
    const map = () => {
      const axes = data.grid.length ? fields.filter((one) => data.grid.includes(one.name)) : fields.filter((one) => one.numbers);
      const shared = frames > 1 && !each && data.grid.length;
      if (!axes.length || (axes.length < 2 && !shared)) return;
      const bar = html("div", { class: "slider" }), sliders = html("div"), films = html("div", { class: "films single" });
      const told_ = html("p", { class: "quiet made reading" }, "Point at the map to read a value.");
      const options = [...axes.map((one) => [one.name, one.name]), ...(shared ? [["", "time"]] : [])];
      const bars = new Map();
      const layout = () => {
        const probe = probes[Number(which.value)];
        if (across.value === up.value) up.value = options.find(([value]) => value !== across.value)[0];
        const used = [across.value, up.value], wanted = [];
        if (data.grid.length) for (const one of axes) if (!used.includes(one.name)) wanted.push([one.name, one.name, one.values.length, 0, (i) => one.values[i]]);
        if (frames > 1 && length(probe) > 1 && !used.includes("")) wanted.unshift(["", "Time", frames, frames - 1, told]);
        for (const [name, label, count, start, words] of wanted) if (!bars.has(name)) bars.set(name, slider(label, count, start, words));
        sliders.replaceChildren(...wanted.map(([name]) => bars.get(name).row));
        show();
      };
      const slider = (label, count, start, words) => {
        const input = html("input", { type: "range", "aria-label": label, min: 0, max: count - 1, step: 1 }), output = html("output");
        input.value = start;
        const tell = () => { output.textContent = words(Number(input.value)); input.setAttribute("aria-valuetext", output.textContent); };
        const play = html("button", { type: "button" }, "Play");
        let timer = 0;
        const stop = () => { clearInterval(timer); timer = 0; play.textContent = "Play"; };
        play.addEventListener("click", () => {
          if (timer) return stop();
          if (Number(input.value) === count - 1) input.value = 0;
          play.textContent = "Stop";
          tell(); show();
          timer = setInterval(() => { input.value = Number(input.value) + 1; tell(); show(); if (Number(input.value) === count - 1) stop(); }, 400);
        });
        input.addEventListener("input", () => { if (timer) stop(); tell(); show(); });
        tell();
        return { row: html("div", { class: "slider" }, play, html("label", {}, `${label} `, input), output), input };
      };
      const at = (name) => Number(bars.get(name)?.input.value ?? 0);
      const show = () => {
        const probe = probes[Number(which.value)], own = length(probe);
        const frameAt = () => (own === 1 ? 0 : at(""));
        const log = probe.log, [low, high] = span(range.value ? probe.mean : here(probe, own, frameAt), log);
        const share = (value) => (high > low ? (log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low)) : 0.5);
        const colour = (value) => (Number.isFinite(value) && (!log || value > 0) ? data.ramp[Math.round(Math.min(1, Math.max(0, share(value))) * (data.ramp.length - 1))] : null);
        const [x, y] = [across.value, up.value].map((name) => named[name] ?? null);
        const rest = axes.filter((one) => one !== x && one !== y && data.grid.length).map((one) => `${one.short} = ${one.values[at(one.name)]}`);
        if (x && y && own > 1) rest.unshift(told(at("")));
        const words = `Map of ${probe.label}: ${across.value || "time"} across, ${up.value || "time"} upwards${rest.length ? `, at ${rest.join(", ")}` : ""}.`;
        const made = data.grid.length ? cells(probe, own, x, y, frameAt, colour, words) : dots(probe, own, x, y, frameAt, colour, words);
        scale(made, low, high, log);
        films.replaceChildren(html("div", {}, html("h5", {}, [probe.name, ...rest].join(", ")), made));
      };
      const [WIDE, HIGH] = LARGE;
      const shown = (i) => !data.grid.length || axes.every((one) => [across.value, up.value].includes(one.name) || one.codes[i] === at(one.name));
      const here = (probe, own, frameAt) => {
        const all = [...Array(points).keys()].filter(shown), timed = [across.value, up.value].includes("");
        return all.flatMap((i) => (timed ? [...probe.mean.subarray(i * own, (i + 1) * own)] : [probe.mean[i * own + frameAt()]]));
      };
      const steps = (field) => {
        if (!field) return data.times.map((t) => tick(Number(g(t, 3))));
        return field.numbers ? field.numbers.map((x) => tick(Number(g(x, 4)))) : field.values.map((x) => (x.length > 16 ? `${x.slice(0, 15)}…` : x));
      };
      const ticks = (labels, size, room, flip) => {
        const step = Math.ceil((labels.length * room) / size), found = [];
        for (let i = 0; i < labels.length; i += step) found.push([size * (flip ? 1 - (i + 0.5) / labels.length : (i + 0.5) / labels.length), labels[i]]);
        return found;
      };
      const cells = (probe, own, x, y, frameAt, colour, words) => {
        const [columns, rows] = [steps(x), steps(y)];
        const [w, h] = [WIDE / columns.length, HIGH / rows.length];
        const made = frame(LARGE, ticks(columns, WIDE, 12 + 6 * Math.max(...columns.map((text) => text.length))), ticks(rows, HIGH, 15, true), x?.name ?? "t", y?.name ?? "t", words, 70);
        const paths = new Map(), values = new Map();
        const put = (column, row, value) => {
          const ink = colour(value) ?? "none";
          paths.set(ink, `${paths.get(ink) ?? ""}M${(column * w).toFixed(2)} ${(HIGH - (row + 1) * h).toFixed(2)}h${(w + 0.3).toFixed(2)}v${(h + 0.3).toFixed(2)}h${(-w - 0.3).toFixed(2)}z`);
          values.set(row * columns.length + column, value);
        };
        for (let i = 0; i < points; i += 1) {
          if (!shown(i)) continue;
          if (x && y) put(x.codes[i], y.codes[i], probe.mean[i * own + frameAt()]);
          else for (let k = 0; k < frames; k += 1) put(x ? x.codes[i] : k, y ? y.codes[i] : k, probe.mean[i * own + (own === 1 ? 0 : k)]);
        }
        for (const [ink, d] of paths) made.append(svg("path", ink === "none" ? { class: "none", d } : { d, fill: ink }));
        const cover = box(LARGE, "frame cover");
        cover.addEventListener("pointermove", (event) => {
          const { left, top, width, height } = cover.getBoundingClientRect();
          const column = Math.min(columns.length - 1, Math.floor(((event.clientX - left) / width) * columns.length));
          const row = Math.min(rows.length - 1, Math.floor((1 - (event.clientY - top) / height) * rows.length));
          const value = values.get(row * columns.length + column);
          told_.textContent = `${x?.name ?? "t"} = ${columns[column]}, ${y?.name ?? "t"} = ${rows[row]}: ${probe.name} ${value === undefined ? "missing" : Number.isNaN(value) ? "missing or not finite" : g(value)}`;
        });
        made.append(cover);
        return made;
      };
      const dots = (probe, own, x, y, frameAt, colour, words) => {
        const logs = [x, y].map(({ numbers }) => Math.min(...numbers) > 0 && Math.max(...numbers) > 100 * Math.min(...numbers));
        const a = axis(...span(x.numbers, logs[0]), WIDE, logs[0]), b = axis(...span(y.numbers, logs[1]), HIGH, logs[1], true);
        const made = frame(LARGE, a.ticks, b.ticks, x.name, y.name, words, 70);
        for (let i = 0; i < points; i += 1) {
          const value = probe.mean[i * own + frameAt()], ink = colour(value);
          const dot = svg("circle", { cx: a.at(x.numbers[x.codes[i]]).toFixed(1), cy: b.at(y.numbers[y.codes[i]]).toFixed(1), r: points > 300 ? 2.5 : 5, ...(ink ? { fill: ink } : { class: "none" }) });
          dot.addEventListener("pointerenter", () => { told_.textContent = `${fields.map((one) => `${one.name} = ${one.values[one.codes[i]]}`).join(", ")}: ${probe.name} ${Number.isNaN(value) ? "missing or not finite" : g(value)}`; });
          made.append(dot);
        }
        made.append(box(LARGE, "frame under"));
        return made;
      };
      const scale = (made, low, high, log) => {
        const count = data.ramp.length, step = HIGH / count;
        data.ramp.forEach((ink, i) => made.append(svg("rect", { x: WIDE + 12, y: (HIGH - (i + 1) * step).toFixed(2), width: 10, height: (step + 0.3).toFixed(2), fill: ink })));
        for (const part of [0, 0.5, 1]) {
          const value = log ? low * (high / low) ** part : low + part * (high - low);
          if (Number.isFinite(value)) made.append(svg("text", { x: WIDE + 26, y: HIGH * (1 - part) + (part === 1 ? 8 : part ? 3 : 0) }, tick(Number(g(value, 3)))));
        }
      };
      const which = choice(bar, "Probe", probes.map((one, i) => [i, one.name]), 0, layout);
      const numeric = [...axes].sort((a, b) => (b.numbers !== null) - (a.numbers !== null));
      const across = choice(bar, "Across", options, numeric[0].name, layout), up = choice(bar, "Upwards", options, numeric[1]?.name ?? "", layout);
      const range = choice(bar, "Colours from", [["all", "all maps"], ["", "this map"]], "all", layout);
      place.append(html("h4", {}, "Map"), bar, sliders, films, told_);
      place.append(html("p", { class: "quiet made" }, `Means over seeds.${probes.some((one) => one.log) ? " Colours are logarithmic where values span more than a factor of 100." : ""} Grey: missing or not finite.`));
      layout();
    };

    // ---------------------------------------------------------------- the table, if it is longer than the page shows
    const rows = () => {
      const table = article.querySelector("table.long");
      if (!table) return;
      const heads = [...table.querySelectorAll("th")], body = table.tBodies[0], status = data.statuses ? 1 : 0;
      const last = (part, probe, i) => probe[part][(i + 1) * length(probe) - 1];
      const key = (column, i) => {
        if (column < fields.length) return fields[column].codes[i];
        if (column === fields.length) return data.seeds[i];
        if (column === fields.length + 1 && status) return data.statuses[i];
        return last("mean", probes[column - fields.length - 1 - status], i);
      };
      const row = (i) => {
        const made = html("tr");
        for (const one of fields) made.append(html("td", { "data-label": one.name }, one.values[one.codes[i]]));
        made.append(html("td", { class: "number", "data-label": "seeds" }, String(data.seeds[i])));
        if (status) made.append(html("td", { "data-label": "status", ...(data.statuses[i] === "finished" ? {} : { class: "bad" }) }, data.statuses[i]));
        for (const probe of probes) {
          const cell = html("td", { class: "number", "data-label": probe.name }), value = last("mean", probe, i);
          cell.append(data.seeds[i] ? g(value) : "");
          if (Number.isFinite(value) && probe.low && data.seeds[i] > 1) cell.append(" ", html("span", { class: "range" }, `${g(last("low", probe, i))} to ${g(last("high", probe, i))}`));
          made.append(cell);
        }
        return made;
      };
      let order = [...Array(points).keys()], shown = body.rows.length;
      const more = html("button", { type: "button" });
      const say = () => {
        article.querySelector(".shown").textContent = `${shown.toLocaleString("en")} of ${points.toLocaleString("en")} rows.`;
        more.textContent = `Show ${Math.min(ROWS, points - shown).toLocaleString("en")} more rows`;
        more.hidden = shown >= points;
      };
      more.addEventListener("click", () => {
        const next = Math.min(points, shown + ROWS);
        body.append(...order.slice(shown, next).map(row));
        shown = next;
        say();
      });
      heads.forEach((head, column) => {
        const press = html("button", { type: "button" });
        press.append(...head.childNodes);
        head.append(press);
        press.addEventListener("click", () => {
          const rising = head.getAttribute("aria-sort") !== "ascending";
          for (const other of heads) other.removeAttribute("aria-sort");
          head.setAttribute("aria-sort", rising ? "ascending" : "descending");
          const keys = order.map((i) => [key(column, i), i]);
          const lacks = (value) => typeof value === "number" && !Number.isFinite(value);
          keys.sort(([a, i], [b, j]) => lacks(a) - lacks(b) || (a < b ? -1 : Number(a > b)) * (rising ? 1 : -1) || i - j);
          order = keys.map(([, i]) => i);
          body.replaceChildren(...order.slice(0, shown).map(row));
        });
      });
      table.parentElement.after(more);
      say();
    };

    curves();
    map();
    rows();
    place.hidden = false;
  };
  // A sweep is drawn when it comes near to the window, so that a page of many of them opens at once.
  const seen = new IntersectionObserver((all) => {
    for (const one of all) if (one.isIntersecting) { seen.unobserve(one.target); draw(one.target); }
  }, { rootMargin: "600px" });
  const articles = document.querySelectorAll(".swept");
  for (const article of articles) seen.observe(article);
  window.addEventListener("beforeprint", () => { articles.forEach(draw); });
})();
