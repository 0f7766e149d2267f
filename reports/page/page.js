"use strict";
// Which runs are shown, light or dark, surfaces that turn. Without this script the page is complete but still.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const one = (selector, root = document) => root.querySelector(selector);
  const encode = (name) => encodeURIComponent(name).replace(/[!'()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`).replaceAll("%2F", "/"); // as Python's quote
  const names = (text) => (text || "").split(" ").filter(Boolean);

  for (const element of all(".control")) element.hidden = false;

  // ---- runs: a set of hidden ones, kept in the address
  const rows = all("table.runs tbody tr");
  const hidden = new Set();
  let place = ""; // the heading a link leads to

  function readAddress() {
    const text = decodeURI(location.hash.slice(1));
    const view = new URLSearchParams(text.includes("=") ? location.hash.slice(1) : "");
    hidden.clear();
    for (const name of names(view.get("off"))) hidden.add(name);
    place = text.includes("=") ? view.get("at") || "" : text;
  }

  function writeAddress() {
    const off = [...hidden].sort().map(encodeURIComponent).join("+");
    const text = off ? `off=${off}${place ? `&at=${encodeURIComponent(place)}` : ""}` : place;
    history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
  }

  function showRuns() {
    for (const row of rows) {
      const off = hidden.has(row.dataset.key);
      row.classList.toggle("off", off);
      one("input", row).checked = !off;
    }
    for (const box of all("[data-method]")) {
      const own = names(box.dataset.method);
      const shown = own.filter((name) => !hidden.has(name)).length;
      box.checked = shown > 0;
      box.indeterminate = shown > 0 && shown < own.length;
    }
    for (const element of all("[data-runs]")) {
      const own = names(element.dataset.runs);
      element.toggleAttribute("data-off", own.length > 0 && own.every((name) => hidden.has(name)));
    }
    const shown = rows.filter((row) => !hidden.has(row.dataset.key)).length;
    one(".tools output").textContent = `${shown} of ${rows.length} shown`;
    for (const surface of surfaces) surface.showTraces();
  }

  function switchRuns(chosen, on) {
    for (const name of chosen) on ? hidden.delete(name) : hidden.add(name);
    writeAddress();
    showRuns();
  }

  for (const row of rows) {
    one("input", row).addEventListener("change", (event) => switchRuns([row.dataset.key], event.target.checked));
  }
  for (const box of all("[data-method]")) {
    box.addEventListener("change", () => switchRuns(names(box.dataset.method), box.checked));
  }
  const filter = one(".filter input");
  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
  });
  const found = () => rows.filter((row) => !row.hidden).map((row) => row.dataset.key); // by the filter
  one("[data-all]").addEventListener("click", () => switchRuns(found(), true));
  one("[data-none]").addEventListener("click", () => switchRuns(found(), false));

  // ---- links inside the page keep the choice of runs
  function goTo(id) {
    const target = id && document.getElementById(id);
    if (target) target.scrollIntoView();
    return target;
  }
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    const target = link && document.getElementById(link.hash.slice(1));
    if (!target || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    place = target.id;
    writeAddress();
    goTo(place);
    if (!target.hasAttribute("tabindex")) target.tabIndex = -1;
    target.focus({ preventScroll: true });
  });
  window.addEventListener("hashchange", () => {
    readAddress();
    showRuns();
    goTo(place);
  });

  // ---- contents: where the reader is
  const toc = one(".toc");
  const entries = all(".toc .toc-part, .toc li > a").map((link) => [link, document.getElementById(link.hash.slice(1))]);
  toc.classList.add("live");
  let waiting = false;
  function markPlace() {
    waiting = false;
    let current = null;
    for (const [link, target] of entries) {
      if (target && target.offsetParent !== null && target.getBoundingClientRect().top < innerHeight / 3) current = link;
    }
    for (const element of all(".toc .here")) element.classList.remove("here");
    for (const link of all(".toc a[aria-current]")) link.removeAttribute("aria-current");
    if (!current) return;
    current.setAttribute("aria-current", "true");
    for (let item = current.closest("li"); item; item = item.parentElement.closest("li")) item.classList.add("here");
  }
  window.addEventListener("scroll", () => {
    if (!waiting) requestAnimationFrame(markPlace);
    waiting = true;
  }, { passive: true });

  // ---- light and dark
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const button = one(".theme");
  const kept = () => { try { return localStorage.getItem("landscape-theme"); } catch { return null; } };
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  function showTheme() {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
    for (const surface of surfaces) surface.showTheme();
  }
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("landscape-theme", root.dataset.theme); } catch { /* a page from disk may not */ }
    showTheme();
  });
  system.addEventListener("change", showTheme);

  // ---- what is packed: large tables, and the library that turns surfaces
  function unpacked(letters) {
    const bytes = Uint8Array.from(atob(letters), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }
  document.addEventListener("click", async (event) => {
    const link = event.target.closest("a[data-packed]");
    if (!link) return;
    event.preventDefault();
    link.href = URL.createObjectURL(new Blob([await unpacked(link.dataset.packed)], { type: "text/csv" }));
    link.removeAttribute("data-packed");
    link.click();
  });

  // ---- surfaces: drawn when they come into view, given up when they are far (browsers allow few drawing contexts)
  let ready = null;
  function loadPlotly() {
    ready ||= unpacked(one("#plotly").textContent).then((text) => {
      const script = document.createElement("script"); // read now and not before: the page opens without it
      script.textContent = text;
      document.head.append(script);
      return window.Plotly;
    });
    return ready;
  }

  function canTurn() {
    try { return Boolean(document.createElement("canvas").getContext("webgl")); } catch { return false; }
  }

  class Surface {
    constructor(element) {
      this.element = element;
      this.space = one(".space", element);
      this.data = JSON.parse(one("script", element).textContent);
      this.cameras = {};
      this.off = new Set(); // runs hidden in this figure alone
      this.alive = false;
      this.scenes = Object.keys(this.data.layout || {}).filter((key) => /^scene\d*$/.test(key));
      if (!this.scenes.length) this.scenes = ["scene"];
      this.makeChips();
      this.space.addEventListener("keydown", (event) => this.turn(event));
    }

    runsOf(trace) {
      const meta = trace.meta || {};
      return meta.runs || (meta.run ? [meta.run] : []);
    }

    makeChips() { // one switch per run, with the mark it has in the table of runs
      const labels = new Map();
      for (const trace of this.data.data) {
        const own = this.runsOf(trace);
        const key = own.join(" ");
        if (!key) continue;
        if (!labels.has(key)) labels.set(key, [trace.name || key, own]);
        if (trace.visible === "legendonly") this.off.add(key);
      }
      const chips = one(".chips", this.element);
      for (const [key, [label, own]] of labels.size > 1 ? labels : []) {
        const box = Object.assign(document.createElement("input"), { type: "checkbox", checked: !this.off.has(key) });
        const item = document.createElement("label");
        const row = rows.find((candidate) => candidate.dataset.key === encode(own[0]));
        item.dataset.runs = own.map(encode).join(" ");
        item.append(box, ...(row ? [one(".swatch", row).cloneNode(true)] : []), label);
        box.addEventListener("change", () => {
          box.checked ? this.off.delete(key) : this.off.add(key);
          this.showTraces();
        });
        chips.append(item);
      }
      const back = Object.assign(document.createElement("button"), { type: "button", textContent: "Reset view" });
      back.addEventListener("click", () => this.turnBack());
      chips.append(back);
    }

    visible() {
      return this.data.data.map((trace) => {
        const own = this.runsOf(trace);
        if (!own.length) return trace.visible ?? true;
        return !this.off.has(own.join(" ")) && !own.every((name) => hidden.has(encode(name)));
      });
    }

    colours() {
      const style = getComputedStyle(this.element);
      const read = (name) => { // resolves light-dark(), which plotly cannot
        const probe = document.createElement("i");
        probe.style.color = `var(${name})`;
        this.element.append(probe);
        const value = getComputedStyle(probe).color;
        probe.remove();
        return value;
      };
      const ink = read("--ink"), line = read("--g8"), soft = read("--soft");
      const change = { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", "font.color": ink };
      for (const scene of this.scenes) {
        change[`${scene}.bgcolor`] = "rgba(0,0,0,0)";
        for (const axis of ["xaxis", "yaxis", "zaxis"]) {
          for (const [key, value] of Object.entries({ color: soft, gridcolor: line, zerolinecolor: line, showbackground: false })) {
            change[`${scene}.${axis}.${key}`] = value;
          }
        }
      }
      change["font.family"] = style.fontFamily;
      return change;
    }

    async show() {
      if (this.alive) return;
      this.alive = true;
      const plotly = await loadPlotly();
      const data = structuredClone(this.data);
      const visible = this.visible();
      data.data.forEach((trace, index) => { trace.visible = visible[index]; });
      const layout = { ...data.layout, margin: { l: 0, r: 0, t: 0, b: 0 }, showlegend: false, autosize: true };
      if (this.space.clientWidth < 500 && layout.coloraxis) { // a phone: colours above, the surface has the width
        const bar = { orientation: "h", x: 0.5, xanchor: "center", y: 1, yanchor: "top", len: 0.9, thickness: 10 };
        layout.coloraxis = { ...layout.coloraxis, colorbar: { ...layout.coloraxis.colorbar, ...bar } };
        for (const scene of this.scenes) { // and no room for more than the names of its sides
          for (const side of ["xaxis", "yaxis"]) {
            const title = layout[scene]?.[side]?.title;
            if (title?.text) title.text = title.text.replace(/ \(.*\)$/, "");
          }
          if (layout[scene]?.zaxis?.title) layout[scene].zaxis.title.text = ""; // the colours say it
        }
      }
      delete layout.width;
      delete layout.height;
      await plotly.newPlot(this.space, data.data, layout, { responsive: true, displaylogo: false, scrollZoom: false, displayModeBar: false });
      await plotly.relayout(this.space, { ...this.colours(), ...this.cameras });
    }

    giveUp() {
      if (!this.alive || !this.space._fullLayout) return;
      for (const scene of this.scenes) this.cameras[`${scene}.camera`] = this.camera(scene);
      window.Plotly.purge(this.space);
      this.alive = false;
    }

    camera(scene) {
      return structuredClone(this.space._fullLayout[scene].camera);
    }

    showTraces() {
      if (this.space._fullLayout) window.Plotly.restyle(this.space, { visible: this.visible() });
    }

    showTheme() {
      if (this.space._fullLayout) window.Plotly.relayout(this.space, this.colours());
    }

    turnBack() {
      if (!this.space._fullLayout) return;
      const start = (scene) => this.data.layout?.[scene]?.camera || null;
      window.Plotly.relayout(this.space, Object.fromEntries(this.scenes.map((scene) => [`${scene}.camera`, start(scene)])));
    }

    turn(event) {
      const step = { ArrowLeft: [-0.15, 0, 1], ArrowRight: [0.15, 0, 1], ArrowUp: [0, 0.1, 1], ArrowDown: [0, -0.1, 1], "+": [0, 0, 0.9], "-": [0, 0, 1.1] }[event.key];
      if (!step || !this.space._fullLayout) return;
      event.preventDefault();
      const change = {};
      for (const scene of this.scenes) {
        const { x, y, z } = this.camera(scene).eye;
        const radius = Math.hypot(x, y, z) * step[2];
        const around = Math.atan2(y, x) + step[0];
        const up = Math.min(1.5, Math.max(-1.5, Math.asin(z / Math.hypot(x, y, z)) + step[1]));
        change[`${scene}.camera.eye`] = {
          x: radius * Math.cos(up) * Math.cos(around), y: radius * Math.cos(up) * Math.sin(around), z: radius * Math.sin(up),
        };
      }
      window.Plotly.relayout(this.space, change);
    }
  }

  const surfaces = [];
  if (one("#plotly") && canTurn()) {
    for (const element of all(".turnable")) {
      surfaces.push(new Surface(element));
      element.hidden = false;
      one(".plate", element.parentElement).hidden = true; // printing shows it again
    }
    const near = new IntersectionObserver((seen) => {
      for (const entry of seen) {
        const surface = surfaces.find((candidate) => candidate.element === entry.target);
        entry.isIntersecting ? surface.show() : surface.giveUp();
      }
    }, { rootMargin: "300px 0px" });
    for (const surface of surfaces) near.observe(surface.element);
  }

  // ---- wide figures scroll inside their frame; the keyboard must reach them then
  const reach = new ResizeObserver((changed) => {
    for (const { target } of changed) target.scrollWidth > target.clientWidth ? (target.tabIndex = 0) : target.removeAttribute("tabindex");
  });
  for (const element of all(".plate, .scroll")) reach.observe(element);

  if (kept()) root.dataset.theme = kept();
  readAddress();
  showRuns();
  showTheme();
  if (place) goTo(place);
  markPlace();
})();
