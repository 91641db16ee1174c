"use strict";

// Methods: a click on the legend hides or shows one everywhere, a double click shows it alone.
const buttons = [...document.querySelectorAll(".legend button")];

function show(button, on) {
  button.setAttribute("aria-pressed", String(on));
  for (const element of document.querySelectorAll("main [data-method]")) {
    if (element.dataset.method === button.dataset.method) element.classList.toggle("off", !on);
  }
}

const shown = (button) => button.getAttribute("aria-pressed") === "true";

for (const button of buttons) {
  button.addEventListener("click", () => show(button, !shown(button)));
  button.addEventListener("dblclick", () => {
    const alone = buttons.every((other) => other === button || !shown(other));
    for (const other of buttons) show(other, alone || other === button);
  });
}

// The tip: what stands under the pointer, as text (never as markup).
const tip = document.getElementById("tip");

function cell(tag, text, className = "") {
  const element = document.createElement(tag);
  element.textContent = text;
  element.className = className;
  return element;
}

function tell(heading, rows, x, y) {
  const table = document.createElement("table");
  for (const [colour, label, say] of rows) {
    const row = table.insertRow();
    row.className = colour;
    row.append(cell("td", "", "dot"), cell("td", label), cell("td", say, "say"));
  }
  tip.replaceChildren(cell("p", heading), table);
  tip.classList.add("on");
  const { width, height } = tip.getBoundingClientRect();
  const right = x + 16 + width < innerWidth ? x + 16 : x - 16 - width;
  tip.style.left = `${Math.max(4, Math.min(right, innerWidth - width - 4))}px`;
  tip.style.top = `${Math.max(4, Math.min(y - height / 2, innerHeight - height - 4))}px`;
}

function hush(chart) {
  tip.classList.remove("on");
  if (chart) chart.querySelector(".guide").classList.add("off");
}

// Charts: one column of points at a time, all shown curves together.
function columns(chart) {
  const found = new Map();
  for (const point of chart.querySelectorAll(".curve:not(.off) .point")) {
    const { at, column } = point.dataset;
    if (!found.has(at)) found.set(at, { at, x: Number(column), points: [] });
    found.get(at).points.push(point);
  }
  return [...found.values()].sort((a, b) => a.x - b.x);
}

function tellColumn(chart, column, x, y) {
  const guide = chart.querySelector(".guide");
  guide.classList.remove("off");
  guide.setAttribute("x1", column.x);
  guide.setAttribute("x2", column.x);
  const rows = column.points.map((point) => {
    const curve = point.closest(".curve");
    return [curve.getAttribute("class"), curve.dataset.label, point.dataset.say];
  });
  tell(column.at, rows, x, y);
}

for (const chart of document.querySelectorAll("svg.chart")) {
  let current = 0;
  const at = (event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(chart.getScreenCTM().inverse());
  const follow = (event) => {
    const all = columns(chart);
    if (!all.length) return hush(chart);
    const x = at(event).x;
    const near = Math.min(...all.map((column) => Math.abs(column.x - x)));
    current = all.findIndex((column) => Math.abs(column.x - x) === near);
    tellColumn(chart, all[current], event.clientX, event.clientY);
  };
  chart.addEventListener("pointermove", follow);
  chart.addEventListener("pointerdown", follow);
  chart.addEventListener("pointerleave", () => hush(chart));
  chart.addEventListener("blur", () => hush(chart));
  chart.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const all = columns(chart);
    if (!step || !all.length) return;
    event.preventDefault();
    current = Math.max(0, Math.min(all.length - 1, current + step));
    const box = chart.getBoundingClientRect();
    tellColumn(chart, all[current], box.left + (all[current].x / chart.viewBox.baseVal.width) * box.width, box.top + box.height / 2);
  });
}

for (const square of document.querySelectorAll("svg.depths .cell")) {
  square.addEventListener("pointermove", (event) => tell(square.dataset.at, [["", square.dataset.say, ""]], event.clientX, event.clientY));
  square.addEventListener("pointerleave", () => hush(null));
}
