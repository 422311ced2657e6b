"""Continue a text with an exported language model; needs onnxruntime and numpy, nothing else.

thinrnn export runs/demo --out demo/model.onnx --streaming
python generate.py demo/model.onnx "the value of"
"""

import json
import re
import sys
from pathlib import Path

import numpy
import onnxruntime

path, prompt, temperature = [*sys.argv[1:], "0.8"][:3]  # at 0 the likeliest token
words = json.loads(Path(path).with_name("vocabulary.json").read_text(encoding="utf-8"))
session = onnxruntime.InferenceSession(path)
state = {v.name: numpy.zeros((1, 1, v.shape[2]), "float32") for v in session.get_inputs()[1:]}

pattern = "." if words["level"] == "char" else r"\w+|[^\w\s]" if words["punctuation"] else r"\S+"
text = re.findall(pattern, prompt.lower() if words["lower"] else prompt)
numbers = {token: number for number, token in enumerate(words["tokens"])}
given = [numbers["<eos>"], *(numbers.get(token, numbers["<unk>"]) for token in text)]
for _ in range(40):
    logits, *last = session.run(None, {"tokens": numpy.array(given)[:, None], **state})
    state = dict(zip(state, last, strict=True))  # what comes out goes in with the next token
    scores = logits[-1, 0] + float(temperature) * numpy.random.gumbel(size=len(numbers))
    scores[numbers["<unk>"]] = -numpy.inf
    given = [int(scores.argmax())]
    text.append(words["tokens"][given[0]])
print(("" if words["level"] == "char" else " ").join(text).replace("<eos>", "\n"))
