/* The page's own script: draws the charts with Plotly, lists what is live at an instant, sorts and filters tables.
   Texts of the recording reach the page as text nodes only. */
(function () {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const narrow = () => window.innerWidth < 600;
  const style = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const isDark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const config = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"] };

  function element(name, text, className) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  }

  function bytesText(count) {
    const prefixes = ["", "Ki", "Mi", "Gi", "Ti"];
    let size = count, place = 0;
    while (Math.abs(size) >= 1024 && place < 4) { size /= 1024; place += 1; }
    return (place ? size.toFixed(2) : String(size)) + " " + prefixes[place] + "B";
  }

  /* Charts */

  function themed(layout) {
    const ink = style("--ink"), line = style("--line");
    const made = Object.assign({}, layout, {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true,
      font: { color: ink, size: narrow() ? 11 : 12.5, family: "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif" },
      hoverlabel: { bgcolor: style("--card"), bordercolor: line, font: { color: ink }, align: "left" },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: style("--soft"), activecolor: style("--accent") }
    });
    for (const name of Object.keys(made)) {
      if (/^[xy]axis\d*$/.test(name)) {
        made[name] = Object.assign({ gridcolor: line, zerolinecolor: line, linecolor: line, separatethousands: true, exponentformat: "none" }, made[name]);
      }
    }
    if (narrow() && made.margin) made.margin = Object.assign({}, made.margin, { r: 8, l: Math.min(made.margin.l, 56) });
    return made;
  }

  const drawn = new Map(); // element -> function that draws it

  function draw(place) {
    const spec = data.charts[place.dataset.chart];
    return Plotly.react(place, spec.data, themed(spec.layout), config);
  }

  function whenSeen(place, paint) {
    drawn.set(place, { paint, isDrawn: false });
  }

  function paintNow(place) {
    const kept = drawn.get(place);
    kept.isDrawn = true;
    return kept.paint();
  }

  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting && !drawn.get(entry.target).isDrawn) paintNow(entry.target);
    }
  }, { rootMargin: "600px" });

  function repaint(all) {
    for (const [place, kept] of drawn) if (all || kept.isDrawn) paintNow(place);
  }

  /* Memory over time */

  function memoryTool(memory) {
    const place = document.getElementById("memory-chart");
    const slider = document.getElementById("instant");
    const count = memory.time.length;
    const total = memory.rounding.map((size, at) => memory.roles.reduce((sum, role) => sum + role.bytes[at], size));
    const most = Math.max(...total, 1);
    let by = "category", at = memory.peak, range = null;

    function stacks() {
      const rounding = memory.categories.find((each) => each.key === "rounding");
      const last = { name: "rounding", color: rounding.color, bytes: memory.rounding };
      const shown = by === "role" ? memory.roles : memory.categories.map((category) => {
        const roles = memory.roles.filter((role) => role.category === category.key);
        return { name: category.name, color: category.color, bytes: memory.time.map((_, i) => roles.reduce((sum, role) => sum + role.bytes[i], 0)) };
      });
      return shown.concat(last).filter((each) => each.bytes.some((size) => size > 0));
    }

    function traces() {
      const made = stacks().map((each) => ({
        type: "scatter", mode: "lines", stackgroup: "one", name: each.name, x: memory.time, y: each.bytes,
        line: { width: 0.6, shape: "hv", color: each.color }, fillcolor: each.color + "d9",
        text: each.bytes.map(bytesText), hovertemplate: "%{text}"
      }));
      made.push({
        type: "scatter", mode: "lines", name: "total", x: memory.time, y: total, line: { width: 0, color: style("--ink") },
        text: total.map(bytesText), hovertemplate: "%{text}", showlegend: false
      });
      return made;
    }

    function ticks() {
      const unit = 1024 ** Math.min(4, Math.max(0, Math.floor(Math.log(most / 2) / Math.log(1024))));
      const raw = most / unit / 5, power = 10 ** Math.floor(Math.log10(raw));
      const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= raw) * unit;
      const values = [];
      for (let value = 0; value <= most * 1.001; value += step) values.push(value);
      const prefix = ["B", "KiB", "MiB", "GiB", "TiB"][Math.round(Math.log(unit) / Math.log(1024))];
      return { tickvals: values, ticktext: values.map((value) => Number((value / unit).toPrecision(4)).toLocaleString("en") + " " + prefix) };
    }

    function shapes() {
      const bands = memory.steps.map((band, index) => ({
        type: "rect", yref: "paper", y0: 0, y1: 1, x0: band.start, x1: band.end, layer: "below",
        fillcolor: index % 2 ? "rgba(128,128,128,.14)" : "rgba(128,128,128,.05)", line: { width: 0 },
        label: memory.steps.length < 9 ? { text: band.name, textposition: "top left", font: { size: 10, color: style("--soft") } } : undefined
      }));
      const strip = memory.phases.map((band) => ({
        type: "rect", yref: "paper", y0: 1.005, y1: 1.03, x0: band.start, x1: band.end, fillcolor: band.color, line: { width: 0 }
      }));
      const cursor = { type: "line", yref: "paper", y0: 0, y1: 1, x0: memory.time[at], x1: memory.time[at], line: { color: style("--ink"), width: 1.5, dash: "dot" } };
      return bands.concat(strip, [cursor]);
    }

    function layout() {
      const peak = { x: memory.time[memory.peak], y: total[memory.peak], text: "peak " + bytesText(total[memory.peak]), showarrow: true, arrowhead: 2, ax: 0, ay: -26, bgcolor: style("--card"), bordercolor: style("--line"), borderpad: 3 };
      return themed({
        height: narrow() ? 360 : 420, margin: { l: 76, r: 16, t: 44, b: 70 }, hovermode: "x unified", shapes: shapes(), annotations: [peak],
        xaxis: { title: { text: "ms from the first counted step" }, range: range || undefined, autorange: range ? undefined : true },
        yaxis: Object.assign({ fixedrange: true, range: [0, most * 1.16] }, ticks()),
        legend: { orientation: "h", y: -0.2, yanchor: "top", x: 0, traceorder: "normal" }
      });
    }

    function paint() {
      return Plotly.react(place, traces(), layout(), config).then(() => {
        if (place.dataset.ready) return;
        place.dataset.ready = "1";
        place.on("plotly_click", (event) => choose(event.points[0].pointIndex));
        place.on("plotly_relayout", (change) => {
          if (change["xaxis.range[0]"] !== undefined) range = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
          if (change["xaxis.autorange"]) range = null;
        });
      });
    }

    function rowsAt() {
      const blocks = memory.blocks, found = [];
      for (let each = 0; each < blocks.bytes.length; each += 1) {
        if (blocks.first[each] <= at && at <= blocks.last[each]) {
          found.push([blocks.bytes[each], ...["role", "layer", "operator", "shape", "name"].map((name) => blocks[name][each] < 0 ? "" : memory.texts[blocks[name][each]])]);
        }
      }
      return found;
    }

    function sums() {
      const found = [];
      for (const [role, sizes] of Object.entries(memory.unlisted.bytes)) {
        if (sizes[at]) found.push([sizes[at], role, "", "", "", "smaller tensors, not listed one by one"]);
      }
      for (const [role, sizes] of Object.entries(memory.unreported)) {
        if (sizes[at]) found.push([sizes[at], role, "", "", "", "in the framework's total, without a reported block"]);
      }
      if (memory.rounding[at]) found.push([memory.rounding[at], "rounding", "", "", "", "what the allocator adds to the sizes"]);
      return found;
    }

    function list(most) {
      const rows = rowsAt(), rest = sums();
      const sum = rows.concat(rest).reduce((before, row) => before + row[0], 0);
      const box = document.getElementById("live");
      const table = element("table", undefined, "sortable");
      table.dataset.sum = String(sum);
      table.dataset.total = String(total[at]);
      table.append(element("caption", "Live at " + memory.time[at].toFixed(3) + " ms: " + rows.length.toLocaleString("en") + " listed tensors, largest first"));
      table.append(head(["size", "role", "layer", "operator", "shape", "name"], 1));
      const body = table.createTBody();
      for (const row of rows.slice(0, most).concat(rest)) addRow(body, row, row[0] / Math.max(rows.length ? rows[0][0] : 1, 1));
      const foot = table.createTFoot().insertRow();
      const cell = foot.insertCell();
      cell.className = "num";
      cell.textContent = bytesText(sum);
      const said = foot.insertCell();
      said.colSpan = 5;
      said.textContent = sum.toLocaleString("en") + " bytes: " + (sum === total[at] ? "equal to the curve" : "the curve says " + total[at].toLocaleString("en"));
      const scroll = element("div", undefined, "scroll");
      scroll.tabIndex = 0;
      scroll.append(table);
      box.replaceChildren(scroll);
      if (rows.length > most) {
        const more = element("button", "Show all " + rows.length.toLocaleString("en"));
        more.type = "button";
        more.addEventListener("click", () => list(Infinity));
        box.append(more);
      }
      sortable(table);
    }

    function addRow(body, row, share) {
      const line = body.insertRow();
      row.forEach((value, column) => {
        const cell = line.insertCell();
        cell.textContent = column ? value : bytesText(value);
        if (column) { cell.title = value; return; }
        cell.className = "num";
        cell.dataset.key = value;
        cell.title = value.toLocaleString("en") + " bytes";
        cell.setAttribute("style", "--bar:" + Math.min(100, 100 * share).toFixed(1) + "%");
      });
    }

    function choose(chosen) {
      at = Math.max(0, Math.min(count - 1, chosen));
      slider.value = at;
      const said = memory.time[at].toFixed(3) + " ms, " + bytesText(total[at]) + (at === memory.peak ? ", the peak" : "");
      document.getElementById("instant-said").textContent = said;
      slider.setAttribute("aria-valuetext", said);
      if (place.dataset.ready) Plotly.relayout(place, { shapes: shapes() });
      list(60);
    }

    function zoom(to) {
      const step = memory.steps.find((band) => band.start <= memory.time[memory.peak] && memory.time[memory.peak] <= band.end);
      range = to === "step" && step ? [step.start, step.end] : null;
      paint();
    }

    function fillTable(event) {
      const box = event.target.querySelector(".scroll");
      if (!event.target.open || box.firstChild) return;
      const shown = stacks(), table = element("table");
      table.append(element("caption", "Bytes at each drawn instant"));
      table.append(head(["ms", "total", ...shown.map((each) => each.name)], 99));
      const body = table.createTBody();
      memory.time.forEach((time, i) => {
        const line = body.insertRow();
        for (const value of [time.toFixed(3), total[i], ...shown.map((each) => each.bytes[i])]) {
          const cell = line.insertCell();
          cell.className = "num";
          cell.textContent = value.toLocaleString("en");
        }
      });
      box.append(table);
    }

    slider.max = count - 1;
    slider.addEventListener("input", () => choose(Number(slider.value)));
    for (const button of document.querySelectorAll("[data-stack]")) {
      button.addEventListener("click", () => {
        by = button.dataset.stack;
        for (const each of document.querySelectorAll("[data-stack]")) each.setAttribute("aria-pressed", String(each === button));
        paint();
      });
    }
    for (const button of document.querySelectorAll("[data-zoom]")) button.addEventListener("click", () => zoom(button.dataset.zoom));
    document.getElementById("memory-table").addEventListener("toggle", fillTable);
    choose(memory.peak);
    whenSeen(place, paint);
    watcher.observe(place);
  }

  /* Tables */

  function head(names, numbers) {
    const made = document.createElement("thead"), line = made.insertRow();
    names.forEach((name, column) => {
      const cell = element("th", undefined, column < numbers ? "num" : "");
      const button = element("button", name);
      cell.scope = "col";
      button.type = "button";
      cell.append(button);
      line.append(cell);
    });
    return made;
  }

  function keyOf(row, column) {
    const cell = row.cells[column];
    if (cell.dataset.key === undefined) return cell.textContent.toLowerCase();
    return cell.dataset.key === "" ? -Infinity : Number(cell.dataset.key);
  }

  function sortable(table) {
    const headings = [...table.querySelectorAll("thead th")];
    headings.forEach((heading, column) => {
      heading.querySelector("button").addEventListener("click", () => {
        const isNumber = heading.classList.contains("num");
        const before = heading.getAttribute("aria-sort");
        const falls = before ? before === "ascending" : isNumber;
        for (const each of headings) each.removeAttribute("aria-sort");
        heading.setAttribute("aria-sort", falls ? "descending" : "ascending");
        const body = table.tBodies[0];
        const rows = [...body.rows].map((row) => [keyOf(row, column), row]);
        rows.sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0) * (falls ? -1 : 1));
        body.append(...rows.map((each) => each[1]));
      });
    });
  }

  function filterable(label) {
    const body = label.closest(".grid").querySelector("tbody"), said = label.querySelector("output");
    label.querySelector("input").addEventListener("input", (event) => {
      const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of body.rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        shown += row.hidden ? 0 : 1;
      }
      said.textContent = shown.toLocaleString("en") + " rows";
    });
  }

  /* Start */

  for (const table of document.querySelectorAll("table.sortable")) sortable(table);
  for (const label of document.querySelectorAll(".filter")) filterable(label);
  for (const place of document.querySelectorAll("[data-chart]")) {
    whenSeen(place, () => draw(place));
    watcher.observe(place);
  }
  if (data.memory && document.getElementById("memory-tool")) memoryTool(data.memory);
  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("tbdprof-theme", root.dataset.theme); } catch (error) { /* no storage: until the page is closed */ }
    repaint(false);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => repaint(false));
  window.addEventListener("beforeprint", () => repaint(true));
  root.dataset.ready = "1";
})();
