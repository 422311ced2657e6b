// Continues a text with an ONNX file of `thinrnn export --streaming`, one token per call.

import * as ort from "./node_modules/onnxruntime-web/dist/ort.wasm.min.mjs";

const TOKENS = 60;
const TEMPERATURE = 0.8;
const [form, prompt, text, status] = ["form", "prompt", "text", "status"].map((id) =>
  document.getElementById(id),
);
const file = new URLSearchParams(location.search).get("model") ?? "model/model.onnx";

ort.env.wasm.numThreads = 1; // a step is too short to share
const words = await fetch(new URL("vocabulary.json", new URL(file, location.href))).then((answer) =>
  answer.json(),
);
const numbers = new Map(words.tokens.map((token, number) => [token, number]));
const [unknown, end] = [numbers.get("<unk>"), numbers.get("<eos>")];
const session = await ort.InferenceSession.create(file);
const states = session.inputMetadata.filter(({ name }) =>
  session.outputNames.includes(`${name}.next`),
);

function split(line) {
  line = words.lower ? line.toLowerCase() : line;
  if (words.level === "char") return [...line];
  return line.match(words.punctuation ? /[\p{L}\p{N}_]+|[^\p{L}\p{N}_\s]/gu : /\S+/gu) ?? [];
}

function choose(logits) {
  // The largest of logits / temperature + Gumbel noise is a draw from their softmax.
  let best = end;
  let highest = -Infinity;
  for (let number = 0; number < logits.length; number++) {
    const score = logits[number] / TEMPERATURE - Math.log(-Math.log(Math.random()));
    if (score > highest && number !== unknown) [best, highest] = [number, score];
  }
  return best;
}

async function* generate(line) {
  let given = [end, ...split(line).map((token) => numbers.get(token) ?? unknown)];
  let state = Object.fromEntries(
    states.map(({ name, shape }) => [
      name,
      new ort.Tensor("float32", new Float32Array(shape[2]), [1, 1, shape[2]]),
    ]),
  );
  for (let count = 0; count < TOKENS; count++) {
    const tokens = new ort.Tensor("int64", BigInt64Array.from(given, BigInt), [given.length, 1]);
    const found = await session.run({ tokens, ...state });
    state = Object.fromEntries(states.map(({ name }) => [name, found[`${name}.next`]]));
    const logits = found[session.outputNames[0]].data;
    given = [choose(logits.subarray(-words.tokens.length))];
    yield words.tokens[given[0]];
  }
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  form.elements[1].disabled = true;
  const glue = words.level === "char" ? "" : " ";
  text.textContent = prompt.value;
  const began = performance.now();
  let count = 0;
  for await (const token of generate(prompt.value)) {
    text.textContent += token === "<eos>" ? "\n" : glue + token;
    count++;
    const milliseconds = (performance.now() - began) / count;
    status.textContent = `${count} tokens, ${milliseconds.toFixed(2)} ms each`;
  }
  form.elements[1].disabled = false;
});

form.elements[1].disabled = false;
status.textContent = `${words.tokens.length} words, ready`;
