// Read-outs for the charts: the pointer, a finger or the arrow keys pick a place, a small box
// says what is there. Each chart carries its data in the JSON block beside its drawing.
"use strict";

const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
tip.setAttribute("role", "status");
document.body.append(tip);

// Fills the box and puts it beside (x, y) on the screen, wholly inside the window.
function show(x, y, title, rows) {
  const heading = document.createElement("p");
  heading.textContent = title;
  tip.replaceChildren(heading, ...rows.map(([name, text, style]) => {
    const row = document.createElement("div");
    const left = document.createElement("span");
    const right = document.createElement("b");
    if (style) left.append(Object.assign(document.createElement("i"), { className: style }));
    left.append(name);
    right.textContent = text;
    row.append(left, right);
    return row;
  }));
  tip.hidden = false;
  const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
  const left = x + 14 <= room ? x + 14 : x - 14 - tip.offsetWidth;
  tip.style.left = Math.max(8, Math.min(left, room)) + "px";
  tip.style.top = Math.max(8, y - 12 - tip.offsetHeight) + "px";
}

for (const chart of document.querySelectorAll(".chart")) {
  const svg = chart.querySelector("svg");
  const data = JSON.parse(chart.querySelector("script").textContent);
  const cursor = svg.querySelector(".cursor");
  const [rule, dot] = cursor.children;
  let at = 0; // the place the arrow keys go on from

  function say(x, y, title, rows) {
    const box = svg.getBoundingClientRect();
    const scale = box.width / svg.viewBox.baseVal.width;
    cursor.setAttribute("visibility", "visible");
    show(box.left + x * scale, box.top + y * scale, title, rows);
  }

  function hide() {
    tip.hidden = true;
    cursor.setAttribute("visibility", "hidden");
  }

  function mark(x, top, bottom, dots) {
    for (const [key, value] of Object.entries({ x1: x, x2: x, y1: top, y2: bottom })) {
      rule.setAttribute(key, value);
    }
    cursor.replaceChildren(rule, ...dots.map(([y, style]) => {
      const copy = dot.cloneNode();
      copy.setAttribute("cx", x);
      copy.setAttribute("cy", y);
      copy.setAttribute("class", style);
      return copy;
    }));
  }

  function nearest(list, distance) {
    return list.reduce((best, _, i) => (distance(list[i]) < distance(list[best]) ? i : best), 0);
  }

  const kinds = {
    lines: {
      find: (x) => nearest(data.x, (v) => Math.abs(v - x)),
      count: () => data.x.length,
      pick(i, y) {
        let lines = data.series.filter((s) => s.y[i] !== null);
        if (lines.length > 8) {
          lines.sort((a, b) => Math.abs(a.y[i] - y) - Math.abs(b.y[i] - y));
          lines = lines.slice(0, 6);
        }
        lines.sort((a, b) => a.y[i] - b.y[i]);
        mark(data.x[i], data.top, data.bottom, lines.map((s) => [s.y[i], s.style]));
        say(data.x[i], y, data.title[i], lines.map((s) => [s.name, s.text[i], s.style]));
      },
    },
    points: {
      find: (x, y) => nearest(data.points, (p) => Math.hypot(data.rows ? 0 : p.x - x, p.y - y)),
      count: () => data.points.length,
      pick(i) {
        const p = data.points[i];
        mark(p.x, p.y, p.y, [[p.y, p.style]]);
        say(p.x, p.y, p.title, p.rows);
      },
    },
    raster: {
      find(x, y) {
        const [left, top, width, height] = data.box;
        const cell = (v, n) => Math.max(0, Math.min(n - 1, Math.floor(v * n)));
        const [columns, rows] = [data.across[1].length, data.down[1].length];
        return cell((y - top) / height, rows) * columns + cell((x - left) / width, columns);
      },
      count: () => data.across[1].length * data.down[1].length,
      pick(i) {
        const [left, top, width, height] = data.box;
        const [columns, rows] = [data.across[1].length, data.down[1].length];
        const [column, row] = [i % columns, Math.floor(i / columns)];
        const [u, v] = [(column + 0.5) / columns, (row + 0.5) / rows];
        mark(left + u * width, top, top + height, []);
        const names = [data.down, data.across].map(([name, list], k) => `${name} ${list[k ? column : row]}`);
        const [title, lines] = data.value
          ? [names.join(", "), [[data.value, pixel(u, v).toFixed(2)]]]
          : [data.title, [[names[0], data.down[2][row]], [names[1], data.across[2][column]]]];
        say(left + u * width, top + v * height, title, lines);
      },
    },
  };

  // The value of a picture at (u, v), both from 0 to 1, read from the picture itself.
  let pixels = null;
  function pixel(u, v) {
    const { width, height, data: bytes } = pixels;
    return bytes[4 * (Math.floor(v * height) * width + Math.floor(u * width))] / 255;
  }

  const kind = kinds[data.kind];
  const go = (i, y) => { at = i; kind.pick(i, y); };
  const start = data.value ? loadPixels : (then) => then();

  async function loadPixels(then) {
    if (!pixels) {
      const image = new Image();
      image.src = svg.querySelector("image").getAttribute("href");
      await image.decode();
      const canvas = document.createElement("canvas");
      [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
      const context = canvas.getContext("2d");
      context.drawImage(image, 0, 0);
      pixels = context.getImageData(0, 0, canvas.width, canvas.height);
    }
    then();
  }

  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const scale = svg.viewBox.baseVal.width / box.width;
    const [x, y] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    if (kind.count()) start(() => go(kind.find(x, y), y));
  });
  svg.addEventListener("pointerdown", (event) => svg.dispatchEvent(new PointerEvent("pointermove", event)));
  // A finger leaves as soon as it is lifted; what it picked stays until the next touch elsewhere.
  svg.addEventListener("pointerleave", (event) => event.pointerType === "touch" || hide());
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const row = data.kind === "raster" ? data.across[1].length : 1;
    const move = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -row, ArrowDown: row }[event.key];
    if (event.key === "Escape") hide();
    if (!move || !kind.count()) return;
    event.preventDefault();
    start(() => go(Math.max(0, Math.min(kind.count() - 1, at + move)), data.top ?? 40));
  });
}
