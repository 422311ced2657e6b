// The page of a reader: a question about the text below it, and the answer marked in that text.

import { openReader } from "./reading.js";

const [form, question, answer, status, shown, context] = [
  "form",
  "question",
  "answer",
  "status",
  "shown",
  "context",
].map((id) => document.getElementById(id));

/** Lays the text behind itself, with a part of it marked; the page grows with it. */
function show(start = 0, end = 0) {
  const text = context.value;
  const mark = document.createElement("mark");
  mark.textContent = text.slice(start, end);
  shown.replaceChildren(text.slice(0, start), ...(end ? [mark] : []), `${text.slice(end)}\n`);
  if (end) mark.scrollIntoView({ block: "nearest" });
}

function forget() {
  show();
  answer.textContent = "";
}

const painted = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));

context.addEventListener("input", forget);
context.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
});
show();

try {
  const reader = await openReader();
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    forget();
    status.textContent = "reading";
    await painted(); // the page freezes while the model reads
    try {
      const began = performance.now();
      const found = await reader.answer(context.value, question.value);
      const milliseconds = performance.now() - began;
      show(found.start, found.end);
      answer.textContent = context.value.slice(found.start, found.end);
      status.textContent =
        `probability ${found.probability.toFixed(2)}, ` +
        `${found.tokens} tokens in ${milliseconds.toFixed(0)} ms`;
    } catch (error) {
      status.textContent = error.message;
    }
  });
  form.elements[1].disabled = false;
  status.textContent = `${reader.known.words.length} words, ready`;
} catch (error) {
  status.textContent = `the reader cannot start: ${error.message}`;
}
