"""Plain gradient steps of fully connected networks, all of a client's in one go, compiled (optional: the extra `fast`,
Numba).

A step of a small network is so short that much of its time goes into copying batches, calling operations and fetching
models from memory again. Here a client's model stays in the cache while its steps run through its samples where they
lie, and what pulls it to its anchor is done on the way. Blocks of four by five outputs, whose sums stay in registers,
make products of this size faster than a BLAS's. Used for linear layers with ReLU between them under cross-entropy,
squared or hinge loss, if Numba is installed; tests hold it equal to dense_gradient.py.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from ..core import Dense, Number
from .compiled import compiled

LOSSES = {"cross-entropy": 0, "squared": 1, "hinge": 2}
_NUMBERS = 200_000  # of a layer's inputs: more do not stay in the cache, and a BLAS is faster;
_BATCH, _WIDE = 32, 100  # so it is for larger batches, unless layers are wide: measured
_LINE = 64  # bytes of a line of the cache
_LEAST, _LOG2 = np.float64(-708.0), 1 / np.log(2.0)  # below it e to it is no normal number
_FAST = frozenset({"reassoc", "contract", "nsz", "arcp"})  # NaN and Inf stay what they are


def descend_(
    loss: str,
    sizes: tuple[int, ...],  # inputs, hidden units, outputs
    biases: tuple[bool, ...],
    theta: Tensor,  # [c, d]
    x: Tensor,  # [n, features...]
    rows: Tensor,  # [T, c, b]
    y: Tensor,  # [T, c, b]
    weight: Tensor,  # [T, c, b]
    takes: np.ndarray,  # [c] how many of the T batches
    repeats: int,
    lr: Number,
    lam: Number,
    anchor: Tensor | None,
) -> None:
    """theta −= lr (∇loss + λ(theta − anchor)) on each client's batches in turn, `repeats` times on each; in place."""
    kappa = np.empty(len(theta), dtype=_numpy(theta).dtype)
    kappa[:] = _each(lr) * _each(lam) if anchor is not None else 0.0
    if isinstance(lr, Tensor):  # a step is linear in the weights
        weight, lr = weight * lr, 1.0
    to = theta[:1] if anchor is None else anchor[:1] if anchor.stride(0) == 0 else anchor
    calls = _layers, _aligned, _brought, _outputs, _exponentials, _loss_slope, _mask, _add_products, _add_bias
    compiled(_steps, _FAST, calls)(
        LOSSES[loss], np.array(sizes), np.array(biases), _numpy(theta),
        _numpy(x.flatten(1) if x.dim() > 1 else x[:, None]), _numpy(rows), _numpy(y), _numpy(weight), takes, repeats,
        lr, kappa, _numpy(to),
    )  # fmt: skip


def worth_it(dense: Dense, batch: int) -> bool:
    """Whether these steps are faster than single ones by matrix products. It must not depend on clients: numbers would
    depend on which of them are together."""
    if dense.loss not in LOSSES:
        return False
    wide = min(dense.sizes[:-1]) >= _WIDE
    return len(dense.biases) == 1 or ((batch <= _BATCH or wide) and batch * max(dense.sizes) <= _NUMBERS)


def _each(value: Number) -> float | np.ndarray:
    """A number, or [c] of a column."""
    found: float | np.ndarray = value[:, 0].numpy() if isinstance(value, Tensor) else value
    return found


def _numpy(value: Tensor) -> np.ndarray:
    return value.contiguous().numpy()


# --- compiled: plain loops over arrays of one type ------------------------------------------------------------------
# mypy: disable-error-code="no-untyped-def,no-untyped-call"


def _steps(loss, sizes, biases, theta, X, rows, y, weight, takes, repeats, lr, kappa, anchor):
    _, clients, size = rows.shape
    depth, rate, still = len(biases), theta.dtype.type(lr), theta.dtype.type(0)
    H = [np.empty((size, sizes[i + 1]), theta.dtype) for i in range(depth)]  # what layers give,
    G = [np.empty((size, sizes[i + 1]), theta.dtype) for i in range(depth)]  # and its slopes, times −lr and weights
    places = np.arange(max(size, sizes.max()))
    W = [_aligned(sizes[i + 1], sizes[i], theta) for i in range(depth)]
    brought = np.zeros(1, theta.dtype)  # a sum that nobody needs: in an array, so that it is computed all the same
    for c in range(clients):
        lies, b = _layers(theta[c], sizes, biases)
        for i in range(depth):
            W[i][:, : sizes[i]] = lies[i]
        to_W, to_b = _layers(anchor[min(c, len(anchor) - 1)], sizes, biases)
        for t in range(takes[c]):
            brought[0] += _brought(X, rows[t, c])
            for _ in range(repeats):
                for i in range(depth):
                    x, at = (X, rows[t, c]) if i == 0 else (H[i - 1], places[:size])
                    _outputs(W[i], b[i], x, at, H[i], i < depth - 1)
                _loss_slope(loss, H[-1], y[t, c], weight[t, c], rate, G[-1])
                for i in range(depth - 1, -1, -1):
                    x, at = (X, rows[t, c]) if i == 0 else (H[i - 1], places[:size])
                    k, slope = sizes[i + 1], G[i].reshape(-1)
                    if i > 0:  # before W moves
                        G[i - 1][:] = 0
                        _add_products(G[i - 1], slope, k, 1, W[i], places[:k], x, still)
                        _mask(G[i - 1].reshape(-1), x.reshape(-1))
                    _add_products(W[i], slope, 1, k, x, at, to_W[i], kappa[c])
                    _add_bias(b[i], G[i], to_b[i], kappa[c])
        for i in range(depth):
            lies[i][:] = W[i][:, : sizes[i]]


def _layers(flat, sizes, biases):
    """A model's weights [outputs, inputs] and biases, of each layer, as views; a bias that is not there is empty."""
    W, b, at = [], [], 0
    for i in range(len(biases)):
        m, n = sizes[i + 1], sizes[i]
        W.append(flat[at : at + m * n].reshape(m, n))
        b.append(flat[at + m * n : at + m * (n + biases[i])])
        at += m * (n + biases[i])
    return W, b


def _aligned(m, n, like):
    """[m, n or a few more] numbers, each row of which begins where a line of the cache does."""
    line = _LINE // like.itemsize
    wide = -(-n // line) * line
    room = np.empty(m * wide + line, like.dtype)
    at = -(room.ctypes.data // like.itemsize) % line
    return room[at : at + m * wide].reshape(m, wide)


def _brought(X, rows):
    """The sum of these rows, four at a time: a loop that does little else brings them fastest from memory."""
    total, last = X.dtype.type(0), len(rows) - 1
    for s in range(0, len(rows), 4):
        x0, x1, x2, x3 = X[rows[s]], X[rows[min(s + 1, last)]], X[rows[min(s + 2, last)]], X[rows[min(s + 3, last)]]
        for j in range(X.shape[1]):
            total += (x0[j] + x1[j]) + (x2[j] + x3[j])
    return total


def _exponentials(v):
    """e to each of these numbers, which are not above 0, in place: 2ⁿ times the series of what is left. The C library
    takes one number at a time."""
    for i in range(len(v)):
        x = np.float64(v[i])
        x = _LEAST if x < _LEAST else x  # NaN stays NaN
        n = np.floor(x * _LOG2 + 0.5)
        r = x - n / _LOG2
        e = 1.0
        for k in range(13, 0, -1):
            e = 1.0 + e * r / k
        bits = np.int64((np.int64(np.int32(n)) + 1023) << 52)  # of 2ⁿ
        v[i] = e * bits.view(np.float64)


def _loss_slope(loss, Z, y, weight, rate, out):
    """−rate · weight · ∂loss/∂Z."""
    if loss == 0:
        for s in range(len(Z)):
            top = Z[s, 0]
            for o in range(1, Z.shape[1]):
                top = max(top, Z[s, o])
            for o in range(Z.shape[1]):
                out[s, o] = Z[s, o] - top
        _exponentials(out.reshape(-1))
    for s in range(len(Z)):
        z, g, scale = Z[s], out[s], -rate * weight[s]
        if loss == 0:
            total = g[0]
            for o in range(1, len(g)):
                total += g[o]
            total = scale / total
            for o in range(len(g)):
                g[o] *= total
            g[int(y[s])] -= scale
        elif loss == 1:
            g[0] = scale * (z[0] - y[s])
        else:
            g[0] = -scale * y[s] if y[s] * z[0] < 1 else 0


def _mask(slope, value):
    """ReLU's slope: 0 where it gave 0."""
    for j in range(len(slope)):
        slope[j] = slope[j] if value[j] > 0 else 0


def _add_bias(b, slope, anchor, pull):
    """b += pull (anchor − b), then its slopes."""
    for o in range(len(b)):
        b[o] += pull * (anchor[o] - b[o])
    for s in range(len(slope)):
        for o in range(len(b)):
            b[o] += slope[s, o]


def _outputs(W, b, X, rows, out, relu):
    """out [b, m] = X[rows] Wᵀ + b, negative ones as 0 where `relu`. Four samples at a time, the last one again where
    they are fewer; five outputs at a time, or two where no more are left, the last one again, too."""
    m, size, d, zero = W.shape[0], len(rows), X.shape[1], W.dtype.type(0)
    o = 0
    while o < m:
        width = 5 if m - o > 2 else 2
        o1, o2, o3, o4 = min(o + 1, m - 1), min(o + 2, m - 1), min(o + 3, m - 1), min(o + 4, m - 1)
        w0, w1, w2, w3, w4 = W[o], W[o1], W[o2], W[o3], W[o4]
        for s in range(0, size, 4):
            s1, s2, s3 = min(s + 1, size - 1), min(s + 2, size - 1), min(s + 3, size - 1)
            x0, x1, x2, x3 = X[rows[s]], X[rows[s1]], X[rows[s2]], X[rows[s3]]
            a0, a1, a2, a3, a4 = zero, zero, zero, zero, zero
            b0, b1, b2, b3, b4 = zero, zero, zero, zero, zero
            c0, c1, c2, c3, c4 = zero, zero, zero, zero, zero
            d0, d1, d2, d3, d4 = zero, zero, zero, zero, zero
            if width == 2:
                for j in range(d):
                    p, q = w0[j], w1[j]
                    a0, b0, c0, d0 = a0 + p * x0[j], b0 + p * x1[j], c0 + p * x2[j], d0 + p * x3[j]
                    a1, b1, c1, d1 = a1 + q * x0[j], b1 + q * x1[j], c1 + q * x2[j], d1 + q * x3[j]
            else:
                for j in range(d):
                    p, q, u, v, w = w0[j], w1[j], w2[j], w3[j], w4[j]
                    x = x0[j]
                    a0, a1, a2, a3, a4 = a0 + p * x, a1 + q * x, a2 + u * x, a3 + v * x, a4 + w * x
                    x = x1[j]
                    b0, b1, b2, b3, b4 = b0 + p * x, b1 + q * x, b2 + u * x, b3 + v * x, b4 + w * x
                    x = x2[j]
                    c0, c1, c2, c3, c4 = c0 + p * x, c1 + q * x, c2 + u * x, c3 + v * x, c4 + w * x
                    x = x3[j]
                    d0, d1, d2, d3, d4 = d0 + p * x, d1 + q * x, d2 + u * x, d3 + v * x, d4 + w * x
                out[s, o4], out[s1, o4], out[s2, o4], out[s3, o4] = a4, b4, c4, d4
                out[s, o3], out[s1, o3], out[s2, o3], out[s3, o3] = a3, b3, c3, d3
                out[s, o2], out[s1, o2], out[s2, o2], out[s3, o2] = a2, b2, c2, d2
            out[s, o1], out[s1, o1], out[s2, o1], out[s3, o1] = a1, b1, c1, d1
            out[s, o], out[s1, o], out[s2, o], out[s3, o] = a0, b0, c0, d0
        o += width
    for s in range(size):
        for o in range(m):
            z = out[s, o] + b[o] if len(b) else out[s, o]
            out[s, o] = zero if relu and z < 0 else z


def _add_products(C, G, across, along, X, rows, anchor, pull):
    """C += pull (anchor − C), then C += G X[rows], where G's element (o, s) lies at o·across + s·along. Five rows of C
    (or two, or one) and four of X at a time; a row of X that is not there counts 0."""
    m, d, terms, zero = C.shape[0], min(C.shape[1], X.shape[1]), len(rows), C.dtype.type(0)
    o = 0
    while o < m:
        height = 5 if m - o >= 5 else 2 if m - o >= 2 else 1
        if pull != 0:
            for row in range(o, o + height):
                for j in range(d):
                    C[row, j] += pull * (anchor[row, j] - C[row, j])
        for s in range(0, terms, 4):
            i, left = o * across + s * along, terms - 1 - s
            n1, n2, n3 = min(1, left), min(2, left), min(3, left)
            t1, t2, t3 = zero + (left > 0), zero + (left > 1), zero + (left > 2)
            r0, r1, r2, r3 = rows[s], rows[s + n1], rows[s + n2], rows[s + n3]
            k1, k2, k3 = n1 * along, n2 * along, n3 * along
            a0, a1, a2, a3 = G[i], t1 * G[i + k1], t2 * G[i + k2], t3 * G[i + k3]
            if height == 1:
                for j in range(d):
                    C[o, j] += (a0 * X[r0, j] + a1 * X[r1, j]) + (a2 * X[r2, j] + a3 * X[r3, j])
                continue
            i += across
            b0, b1, b2, b3 = G[i], t1 * G[i + k1], t2 * G[i + k2], t3 * G[i + k3]
            if height == 2:
                for j in range(d):
                    x0, x1, x2, x3 = X[r0, j], X[r1, j], X[r2, j], X[r3, j]
                    C[o, j] += (a0 * x0 + a1 * x1) + (a2 * x2 + a3 * x3)
                    C[o + 1, j] += (b0 * x0 + b1 * x1) + (b2 * x2 + b3 * x3)
                continue
            i += across
            c0, c1, c2, c3 = G[i], t1 * G[i + k1], t2 * G[i + k2], t3 * G[i + k3]
            i += across
            d0, d1, d2, d3 = G[i], t1 * G[i + k1], t2 * G[i + k2], t3 * G[i + k3]
            i += across
            e0, e1, e2, e3 = G[i], t1 * G[i + k1], t2 * G[i + k2], t3 * G[i + k3]
            for j in range(d):
                x0, x1, x2, x3 = X[r0, j], X[r1, j], X[r2, j], X[r3, j]
                C[o, j] += (a0 * x0 + a1 * x1) + (a2 * x2 + a3 * x3)
                C[o + 1, j] += (b0 * x0 + b1 * x1) + (b2 * x2 + b3 * x3)
                C[o + 2, j] += (c0 * x0 + c1 * x1) + (c2 * x2 + c3 * x3)
                C[o + 3, j] += (d0 * x0 + d1 * x1) + (d2 * x2 + d3 * x3)
                C[o + 4, j] += (e0 * x0 + e1 * x1) + (e2 * x2 + e3 * x3)
        o += height
