"""The C functions that statements call. A matrix is stored by columns, so that compilers can use
vector instructions without reordering sums; `scale` is 0 unless its rows are in 8 bits."""

import re

HELPERS = {
    "exp_": """
/* e^x within two units in the last place, without libm, in a form that compilers vectorize. */
static float exp_(float x)
{
    union { uint32_t bits; float value; } power;
    int32_t n;
    float y;
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    n = (int32_t)(x * 1.44269504f + (x < 0.0f ? -0.5f : 0.5f));
    x = x - (float)n * 0.693359375f + (float)n * 2.12194440e-4f;
    y = 1.9875691500e-4f;
    y = y * x + 1.3981999507e-3f;
    y = y * x + 8.3334519073e-3f;
    y = y * x + 4.1665795894e-2f;
    y = y * x + 1.6666665459e-1f;
    y = y * x + 5.0000001201e-1f;
    y = y * x * x + x + 1.0f;
    power.bits = (uint32_t)(n + 127) << 23;
    return y * power.value;
}
""",
    "sigmoid_": """
static float sigmoid_(float x)
{
    return 1.0f / (1.0f + exp_(-x));
}
""",
    "tanh_": """
static float tanh_(float x)
{
    return 2.0f * sigmoid_(2.0f * x) - 1.0f;
}
""",
    "relu_": """
static float relu_(float x)
{
    return x > 0.0f ? x : 0.0f;
}
""",
    "lookup": """
/* out = row `token` of a table; zeros for a token that it does not have. */
static void lookup(float *out, int32_t token, const weight *table, const float *scale,
                   int rows, int columns)
{
    int j, known = token >= 0 && token < rows;
    for (j = 0; j < columns; j++)
        out[j] = known ? (float)table[j * rows + token] * (scale ? scale[token] : 1.0f) : 0.0f;
}
""",
    "product": """
/* out += W x */
static void product(float *restrict out, const float *restrict x, const weight *restrict w,
                    int rows, int columns)
{
    int i, j;
    for (j = 0; j + 4 <= columns; j += 4, w += 4 * rows) {
        const float a = x[j], b = x[j + 1], c = x[j + 2], d = x[j + 3];
        const weight *wb = w + rows, *wc = wb + rows, *wd = wc + rows;
        for (i = 0; i < rows; i++)
            out[i] += a * (float)w[i] + b * (float)wb[i] + c * (float)wc[i] + d * (float)wd[i];
    }
    for (; j < columns; j++, w += rows)
        for (i = 0; i < rows; i++)
            out[i] += x[j] * (float)w[i];
}
""",
    "linear": """
/* out = W x + bias */
static void linear(float *restrict out, const float *x, const weight *w, const float *scale,
                   const float *bias, int rows, int columns)
{
    int i;
    for (i = 0; i < rows; i++)
        out[i] = scale || !bias ? 0.0f : bias[i];
    product(out, x, w, rows, columns);
    if (scale)
        for (i = 0; i < rows; i++)
            out[i] = out[i] * scale[i] + (bias ? bias[i] : 0.0f);
}
""",
    "conv1d": """
/* out (rows, places): a convolution over x (channels, length) */
static void conv1d(float *restrict out, const float *restrict x, const weight *restrict w,
                   const float *scale, const float *bias, int rows, int channels, int length,
                   int taps, int stride, int padding, int dilation, int places)
{
    int i, j, k, p;
    for (i = 0; i < rows * places; i++)
        out[i] = 0.0f;
    for (j = 0; j < channels; j++)
        for (k = 0; k < taps; k++, w += rows)
            for (p = 0; p < places; p++) {
                const int at = p * stride + k * dilation - padding;
                if (at >= 0 && at < length)
                    for (i = 0; i < rows; i++)
                        out[i * places + p] += x[j * length + at] * (float)w[i];
            }
    for (i = 0; i < rows; i++)
        for (p = 0; p < places; p++)
            out[i * places + p] = out[i * places + p] * (scale ? scale[i] : 1.0f)
                                + (bias ? bias[i] : 0.0f);
}
""",
    "gates": """
/* out = W x + U h + bias */
static void gates(float *restrict out, const float *x, const weight *w, const float *w_scale,
                  const float *h, const weight *u, const float *u_scale, const float *bias,
                  int rows, int inputs, int outputs)
{
    int i;
    linear(out, x, w, w_scale, bias, rows, inputs);
    if (u_scale)
        for (i = 0; i < rows; i++)
            out[i] /= u_scale[i];
    product(out, h, u, rows, outputs);
    if (u_scale)
        for (i = 0; i < rows; i++)
            out[i] *= u_scale[i];
}
""",
    "lstm": """
/* c = f c + i g, and m = o tanh(c), from the sums of the gates i, f, g, o */
static void lstm(float *restrict m, float *restrict c, float *restrict a, int n)
{
    int j;
    for (j = 0; j < n; j++) {
        c[j] = sigmoid_(a[n + j]) * c[j] + sigmoid_(a[j]) * tanh_(a[2 * n + j]);
        m[j] = sigmoid_(a[3 * n + j]) * tanh_(c[j]);
    }
}
""",
    "gru": """
/* h = (1 - z) tanh(x_n + r h_n) + z h, from the sums of the gates r, z, n */
static void gru(float *restrict h, const float *restrict x, const float *restrict u, int n)
{
    int j;
    for (j = 0; j < n; j++) {
        const float r = sigmoid_(x[j] + u[j]), z = sigmoid_(x[n + j] + u[n + j]);
        const float g = tanh_(x[2 * n + j] + r * u[2 * n + j]);
        h[j] = g + z * (h[j] - g);
    }
}
""",
    "softmax": """
static void softmax(float *out, const float *x, int n)
{
    float largest = x[0], sum = 0.0f;
    int i;
    for (i = 1; i < n; i++)
        largest = x[i] > largest ? x[i] : largest;
    for (i = 0; i < n; i++)
        sum += out[i] = exp_(x[i] - largest);
    for (i = 0; i < n; i++)
        out[i] /= sum;
}
""",
    "log_softmax": """
static void log_softmax(float *out, const float *x, int n)
{
    float largest = x[0], sum = 0.0f;
    int i;
    for (i = 1; i < n; i++)
        largest = x[i] > largest ? x[i] : largest;
    for (i = 0; i < n; i++)
        sum += exp_(x[i] - largest);
    sum = largest + logf(sum);
    for (i = 0; i < n; i++)
        out[i] = x[i] - sum;
}
""",
    "layer_norm": """
static void layer_norm(float *out, const float *x, const float *gain, const float *bias,
                       float epsilon, int n)
{
    float mean = 0.0f, variance = 0.0f;
    int i;
    for (i = 0; i < n; i++)
        mean += x[i] / (float)n;
    for (i = 0; i < n; i++)
        variance += (x[i] - mean) * (x[i] - mean) / (float)n;
    for (i = 0; i < n; i++)
        out[i] = (x[i] - mean) / sqrtf(variance + epsilon) * (gain ? gain[i] : 1.0f)
               + (bias ? bias[i] : 0.0f);
}
""",
}
LIBM = re.compile(r"\b(logf|sqrtf|erff|log1pf|fabsf)\b")


def used_by(code: str) -> list[str]:
    """Return the helpers that some C code calls, directly or not, in the order of `HELPERS`."""
    found: set[str] = set()
    texts = [code]
    while texts:
        text = texts.pop()
        new = {name for name in HELPERS if re.search(rf"\b{name}\(", text)} - found
        found |= new
        texts += [HELPERS[name] for name in new]
    return [name for name in HELPERS if name in found]
