// Answers questions about texts with the files of reader.py, as `thinrnn ask` does.
//
// text -> tokens -> every different one once: vector and characters -> ONNX file -> best span

const LONGEST = 30; // tokens of an answer

// \s, \d and \w of Python mean more than they do here, so the classes of Unicode are named.
const LETTER = "[\\p{L}\\p{Nl}\\p{No}]";
const TOKEN = new RegExp(
  `(?:${LETTER}\\.){2,}|${LETTER}+|\\p{Nd}+(?:[.,]\\p{Nd}+)*` +
    "|[^\\p{L}\\p{N}_\\p{White_Space}\\x1c-\\x1f]|_",
  "gu",
);

/** Returns where the tokens of a text are: text.slice(start, end) is a token. */
export function split(text) {
  return [...text.matchAll(TOKEN)].map(({ 0: token, index }) => [index, index + token.length]);
}

/** Returns first and last token of the likeliest span, and how likely it is, from two logits. */
export function bestSpan(start, end) {
  const [before, behind] = [start, end].map(logSoftmax);
  let best = { first: 0, last: 0, score: -Infinity };
  for (let last = 0; last < behind.length; last++)
    for (let first = Math.max(0, last - LONGEST + 1); first <= last; first++) {
      const score = before[first] + behind[last];
      if (score > best.score) best = { first, last, score };
    }
  return { ...best, probability: Math.exp(best.score) };
}

function logSoftmax(logits) {
  const most = logits.reduce((a, b) => Math.max(a, b));
  const sum = logits.reduce((a, b) => a + Math.exp(b - most), 0);
  return Array.from(logits, (logit) => logit - most - Math.log(sum));
}

/** Returns a reader, ready to answer; throws what is missing. */
export async function openReader() {
  const [model, known, rows, ort] = await Promise.all([
    load("reader.onnx").then((answer) => answer.arrayBuffer()),
    load("words.json").then((answer) => answer.json()),
    load("vectors.bin").then((answer) => answer.arrayBuffer()),
    import("./node_modules/onnxruntime-web/dist/ort.wasm.min.mjs"),
  ]);
  if (rows.byteLength !== 2 * known.vector * known.words.length)
    throw new Error("vectors.bin and words.json are not of one making: run reader.py again");
  ort.env.wasm.numThreads = 1; // a step is too short to share
  const session = await ort.InferenceSession.create(model);
  return new Reader(ort, session, known, new Uint16Array(rows));
}

async function load(name) {
  const answer = await fetch(name);
  if (!answer.ok) throw new Error(`${name} is missing (${answer.status}): run reader.py again`);
  return answer;
}

class Reader {
  constructor(ort, session, known, rows) {
    Object.assign(this, { ort, session, known, rows });
    this.words = new Map(known.words.map((word, row) => [word, row]));
    this.letters = new Map(known.characters.map((c, number) => [c, known.first + number]));
  }

  /** Returns the part of a text that answers a question: start, end and probability. */
  async answer(context, question) {
    const [spans, asked] = [split(context), split(question)];
    if (!spans.length) throw new Error("the text has no words: paste some text");
    if (!asked.length) throw new Error("the question has no words: type a question");
    const numbers = new Map([["", 0]]); // "" is padding
    const number = (text) => ([start, end]) => {
      const token = text.slice(start, end);
      if (!numbers.has(token)) numbers.set(token, numbers.size);
      return numbers.get(token);
    };
    const texts = { context: spans.map(number(context)), question: asked.map(number(question)) };
    const tokens = [...numbers.keys()];
    const found = await this.session.run({
      vectors: this.tensor("float32", this.vectors(tokens), tokens.length),
      characters: this.tensor("int64", this.characters(tokens), tokens.length),
      context: this.tensor("int64", BigInt64Array.from(texts.context, BigInt), 1),
      question: this.tensor("int64", BigInt64Array.from(texts.question, BigInt), 1),
    });
    const [start, end] = this.session.outputNames.map((name) => found[name].data);
    const { first, last, probability } = bestSpan(start, end);
    return { start: spans[first][0], end: spans[last][1], probability, tokens: spans.length };
  }

  tensor(type, data, rows) {
    return new this.ort.Tensor(type, data, [rows, data.length / rows]);
  }

  /** Returns the vectors of tokens, side by side; row 0 is that of unknown words. */
  vectors(tokens) {
    const size = this.known.vector;
    return Float32Array.from({ length: tokens.length * size }, (_, place) => {
      const row = this.words.get(tokens[Math.floor(place / size)].toLowerCase()) ?? 0;
      return fromHalf(this.rows[row * size + (place % size)]);
    });
  }

  /** Returns the numbers of the first characters of tokens, side by side; 0 behind the last. */
  characters(tokens) {
    const length = this.known.word_length;
    const found = new BigInt64Array(tokens.length * length).fill(BigInt(this.known.padding));
    tokens.forEach((token, row) =>
      [...token].slice(0, length).forEach((character, place) => {
        const number = this.letters.get(character) ?? this.known.unknown;
        found[row * length + place] = BigInt(number);
      }),
    );
    return found;
  }
}

/** Returns the number that 16 bits encode. */
function fromHalf(bits) {
  const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
  const size = exponent ? 2 ** (exponent - 25) * (1024 + fraction) : 2 ** -24 * fraction;
  return bits >> 15 ? -size : size;
}
