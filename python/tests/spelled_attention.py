"""Attention from x (B, L, 32) to y as TensorFlow, Keras, optimum and models by hand spell it, and what is nearly attention."""


def each(nodes: str, names: str = "qkv") -> str:
    """The nodes once for each name, which stands where ``*`` does."""
    return "".join(nodes.replace("*", name) for name in names)


# Queries, keys and values (B, 4, L, 8) from x (B, L, 32).
HEADS = """
    split = Constant <value_ints = [0, 0, 4, 8]> ()
    join = Constant <value_ints = [0, 0, 32]> ()
""" + each("""
    *0 = MatMul(x, w*)
    *1 = Reshape(*0, split)
    * = Transpose <perm = [0, 2, 1, 3]> (*1)
""")
# All three from one product, on the first axis of a.
STACKED = """
    parts = Constant <value_ints = [0, 0, 3, 4, 8]> ()
    join = Constant <value_ints = [0, 0, 32]> ()
    all = Concat <axis = 1> (wq, wk, wv)
    a0 = MatMul(x, all)
    a1 = Reshape(a0, parts)
    a = Transpose <perm = [2, 0, 3, 1, 4]> (a1)
"""
TURNED = "kt = Transpose <perm = [0, 1, 3, 2]> (k)\n s = MatMul(q, kt)\n"
NUMBERS = """
    one = Constant <value_float = 1.0> ()
    low = Constant <value_float = -10000.0> ()
    far = Constant <value_float = -1e9> ()
    lowest = Constant <value = float {-3.4028235e38}> ()
    infinite = Constant <value = float {-inf}> ()
    scale = Constant <value_float = 0.35355339> ()
    root = Constant <value_float = 2.828427> ()
    zero = Constant <value_int = 0> ()
    zeros = Constant <value_ints = [0]> ()
    ones = Constant <value_ints = [1]> ()
    twos = Constant <value_ints = [2]> ()
    lasts = Constant <value_ints = [-1]> ()
    middles = Constant <value_ints = [1, 2]> ()
"""
END = """
    y0 = MatMul(p, v)
    y1 = Transpose <perm = [0, 2, 1, 3]> (y0)
    y = Reshape(y1, join)
"""
# As a float mask (B, 1, 1, L), 0 or -10000.
ADDED = """
    f = Cast <to = 1> (mask)
    f4 = Unsqueeze(f, middles)
    g = Sub(one, f4)
    bias = Mul(g, low)
"""
SEEN = "seen2 = Cast <to = 9> (mask)\n seen = Unsqueeze(seen2, middles)\n"
SOFT = "p = Softmax <axis = -1> (t)\n"


def heads(nodes: str) -> str:
    return HEADS + nodes + END


def plain(nodes: str) -> str:
    """From scores s to what the softmax is taken of."""
    return heads(TURNED + nodes + SOFT)


# Two heads of keys for four of queries, by broadcasting.
GROUPED = HEADS + """
    length = Constant <value_ints = [3]> ()
    shape = Shape(x)
    steps = Gather(shape, ones)
    rows0 = Slice(triangle, zeros, steps, twos)
    triangle_of_length = Slice(rows0, zeros, steps, length)
    groups = Constant <value_ints = [0, 2, 2, -1, 8]> ()
    back = Constant <value_ints = [0, 4, -1, 8]> ()
    q5 = Reshape(q, groups)
    key = Slice(k, zeros, twos, ones)
    value = Slice(v, zeros, twos, ones)
    k5 = Unsqueeze(key, twos)
    v5 = Unsqueeze(value, twos)
    kt = Transpose <perm = [0, 1, 2, 4, 3]> (k5)
    s = MatMul(q5, kt)
    u = Mul(s, scale)
    MASKED
    p = Softmax <axis = -1> (t)
    y5 = MatMul(p, v5)
    y0 = Reshape(y5, back)
    y1 = Transpose <perm = [0, 2, 1, 3]> (y0)
    y = Reshape(y1, join)
"""


ATTENTION = {
    "scale_after": plain("t = Mul(s, scale)\n"),
    "scale_by_division": plain("t = Div(s, root)\n"),
    "no_scale": plain("t = Identity(s)\n"),
    "root_of_size": plain("""
        shape = Shape(q)
        width = Gather(shape, lasts)
        number = Cast <to = 1> (width)
        d = Sqrt(number)
        t = Div(s, d)
    """),
    "root_of_size_as_scalar": plain("""
        shape = Shape(q)
        width0 = Gather(shape, lasts)
        width = Squeeze(width0, zeros)
        number = Cast <to = 1> (width)
        d = Sqrt(number)
        t = Div(s, d)
    """),
    "inverse_root_of_size": plain("""
        shape = Shape(q)
        width = Gather(shape, lasts)
        number = Cast <to = 1> (width)
        d = Sqrt(number)
        r = Reciprocal(d)
        t = Mul(r, s)
    """),
    "bert": plain(ADDED + "u = Div(s, root)\n t = Add(u, bias)\n"),
    "bert_of_keras": plain(ADDED + "tiny = Constant <value_float = 1e-9> ()\n u = Div(s, root)\n w = Add(bias, u)\n t = Add(w, tiny)\n"),
    "mask_before_scale": plain(ADDED + "u = Add(s, bias)\n t = Mul(u, scale)\n"),
    "where_lowest": plain(SEEN + "u = Mul(s, scale)\n t = Where(seen, u, lowest)\n"),
    "where_not": plain(SEEN + "hidden = Not(seen)\n u = Mul(s, scale)\n t = Where(hidden, lowest, u)\n"),
    "where_equal": plain("m4 = Unsqueeze(mask, middles)\n hidden = Equal(m4, zero)\n u = Mul(s, scale)\n t = Where(hidden, far, u)\n"),
    "where_infinite": plain(SEEN + "u = Mul(s, scale)\n t = Where(seen, u, infinite)\n"),
    "bias_of_positions": plain(ADDED + "b2 = Add(bias, positions)\n t = Add(s, b2)\n"),
    "a_scale_for_each_head": plain(ADDED + "u = Mul(temperature, s)\n w = Add(u, positions)\n t = Add(w, bias)\n"),
    "a_divisor_for_each_head": plain("t = Div(s, temperature)\n"),
    "two_masks": plain(ADDED + "u = Mul(s, scale)\n w = Add(u, positions)\n t = Add(w, bias)\n"),
    "gpt2": plain("""
        shape = Shape(x)
        length = Gather(shape, ones)
        a = Slice(triangle, zeros, length, twos)
        three = Constant <value_ints = [3]> ()
        c = Slice(a, zeros, length, three)
        below = Cast <to = 9> (c)
        u = Div(s, root)
        t = Where(below, u, lowest)
    """),
    "triangle_by_numbers": plain("""
        shape = Shape(x)
        length = Gather(shape, ones)
        a = Slice(triangle, zeros, length, twos)
        three = Constant <value_ints = [3]> ()
        c = Slice(a, zeros, length, three)
        kept = Mul(s, c)
        other = Sub(one, c)
        big = Constant <value_float = 1e9> ()
        lost = Mul(other, big)
        t = Sub(kept, lost)
    """),
    "kept_by_a_mask": plain("f = Cast <to = 1> (mask)\n f4 = Unsqueeze(f, middles)\n seen = Cast <to = 9> (f4)\n b = Cast <to = 1> (seen)\n kept = Mul(b, s)\n g = Sub(one, b)\n lost = Mul(g, far)\n t = Add(kept, lost)\n"),
    "keys_turned_at_once": HEADS + "kt = Transpose <perm = [0, 2, 3, 1]> (k1)\n s = MatMul(q, kt)\n t = Mul(s, scale)\n" + SOFT + END,
    "keys_scaled": heads("kt = Transpose <perm = [0, 1, 3, 2]> (k)\n ks = Mul(kt, scale)\n t = MatMul(q, ks)\n" + SOFT),
    "queries_scaled": heads("qs = Div(q, root)\n kt = Transpose <perm = [0, 1, 3, 2]> (k)\n t = MatMul(qs, kt)\n" + SOFT),
    "fused_products": heads("s = com.microsoft.FusedMatMul <alpha = 0.35355339, transB = 1> (q, k)\n" + ADDED + "t = Add(s, bias)\n" + SOFT),
    "softmax_dropped_out": heads(TURNED + "t = Mul(s, scale)\n p0 = Softmax <axis = -1> (t)\n p = Dropout(p0)\n"),
    "softmax_of_the_last_axis_by_number": heads(TURNED + "t = Mul(s, scale)\n p = Softmax <axis = 3> (t)\n"),
    "lifted": plain(ADDED + "u = Mul(s, scale)\n w = Add(u, bias)\n t = Max(w, lowest)\n"),
    "lifted_from_infinity": plain(
        "hidden = Constant <value = float {-inf}> ()\n zero_f = Constant <value_float = 0.0> ()\n"
        + SEEN
        + "none = Not(seen)\n some = And(seen, none)\n bias = Where(some, zero_f, hidden)\n w = Add(s, bias)\n t = Max(lowest, w)\n"
    ),
    "clipped": plain(ADDED + "u = Mul(s, scale)\n w = Add(u, bias)\n t = Clip(w, lowest)\n"),
    "with_a_past": HEADS
    + """
        kk = Concat <axis = 2> (k, k)
        vv = Concat <axis = 2> (v, v)
        kt = Transpose <perm = [0, 1, 3, 2]> (kk)
        s = MatMul(q, kt)
        t = Mul(s, scale)
    """
    + SOFT
    + END.replace("(p, v)", "(p, vv)"),
    "one_head_of_keys": HEADS
    + ADDED
    + """
        key = Slice(k, zeros, ones, ones)
        value = Slice(v, zeros, ones, ones)
        kt = Transpose <perm = [0, 1, 3, 2]> (key)
        s = MatMul(q, kt)
        u = Mul(s, scale)
        t = Add(u, bias)
    """
    + SOFT
    + END.replace("(p, v)", "(p, value)"),
    "keys_first": HEADS
    + """
        qt = Transpose <perm = [0, 1, 3, 2]> (q)
        st = MatMul(k, qt)
        s = Transpose <perm = [0, 1, 3, 2]> (st)
        t = Mul(s, scale)
    """
    + SOFT
    + END,
    "values_first": HEADS
    + TURNED
    + "t = Mul(s, scale)\n"
    + SOFT
    + """
        vt = Transpose <perm = [0, 1, 3, 2]> (v)
        pt = Transpose <perm = [0, 1, 3, 2]> (p)
        yt = MatMul(vt, pt)
        y0 = Transpose <perm = [0, 1, 3, 2]> (yt)
        y1 = Transpose <perm = [0, 2, 1, 3]> (y0)
        y = Reshape(y1, join)
    """,
    # Keras multiplies by projections (D, H, E) and by keys first.
    "keras": """
        parts = Constant <value_ints = [32, 4, 8]> ()
        join = Constant <value_ints = [0, 0, 32]> ()
    """ + each("""
        p* = Reshape(w*, parts)
        * = Einsum <equation = "abc,cde->abde"> (x, p*)
    """) + """
        qs = Mul(q, scale)
        s = Einsum <equation = "aecd,abcd->acbe"> (k, qs)
    """ + ADDED + """
        t = Add(s, bias)
        p = Softmax <axis = -1> (t)
        y0 = Einsum <equation = "acbe,aecd->abcd"> (p, v)
        y = Reshape(y0, join)
    """,
    # One projection for all three, as in timm.
    "stacked": STACKED + """
        first = Constant <value_int = 0> ()
        second = Constant <value_int = 1> ()
        third = Constant <value_int = 2> ()
        q = Gather(a, first)
        k = Gather(a, second)
        v = Gather(a, third)
    """ + TURNED + "t = Mul(s, scale)\n" + SOFT + END,
    "split_and_squeezed": STACKED + """
        sizes = Constant <value_ints = [1, 1, 1]> ()
        b0, b1, b2 = Split <axis = 0> (a, sizes)
        q = Squeeze(b0, zeros)
        k = Squeeze(b1, zeros)
        v = Squeeze(b2, zeros)
    """ + TURNED + "t = Mul(s, scale)\n" + SOFT + END,
    # Heads and batch on one axis, the mask on two, as in BART and Whisper.
    "flat": """
        shape = Shape(x)
        b = Slice(shape, zeros, ones)
        l = Slice(shape, ones, twos)
        four = Constant <value_ints = [4]> ()
        eight = Constant <value_ints = [8]> ()
        flat4 = Mul(b, four)
        four_axes = Concat <axis = 0> (b, l, four, eight)
        three_axes = Concat <axis = 0> (flat4, l, eight)
        scores4 = Concat <axis = 0> (b, four, l, l)
        scores3 = Concat <axis = 0> (flat4, l, l)
        back = Concat <axis = 0> (b, four, l, eight)
    """ + each("""
        *0 = MatMul(x, w*)
        *1 = Reshape(*0, four_axes)
        *2 = Transpose <perm = [0, 2, 1, 3]> (*1)
        * = Reshape(*2, three_axes)
    """) + """
        qs = Mul(q, scale)
        kt = Transpose <perm = [0, 2, 1]> (k)
        s = MatMul(qs, kt)
    """ + ADDED + """
        u = Reshape(s, scores4)
        u2 = Add(u, bias)
        t = Reshape(u2, scores3)
        p = Softmax <axis = -1> (t)
        y0 = MatMul(p, v)
        y1 = Reshape(y0, back)
        y2 = Transpose <perm = [0, 2, 1, 3]> (y1)
        join = Constant <value_ints = [0, 0, 32]> ()
        y = Reshape(y2, join)
    """,
    # Two heads of keys for four of queries.
    "shared": HEADS + """
        from_two = Constant <value_ints = [0]> ()
        to_two = Constant <value_ints = [2]> ()
        kk = Slice(k, from_two, to_two, ones)
        vv = Slice(v, from_two, to_two, ones)
        shape = Shape(x)
        b = Slice(shape, zeros, ones)
        l = Slice(shape, ones, twos)
        eight = Constant <value_ints = [8]> ()
        four = Constant <value_ints = [4]> ()
        wide = Concat <axis = 0> (b, twos, twos, l, eight)
        narrow = Concat <axis = 0> (b, four, l, eight)
        k5 = Unsqueeze(kk, twos)
        k6 = Expand(k5, wide)
        ks = Reshape(k6, narrow)
        v5 = Unsqueeze(vv, twos)
        v6 = Expand(v5, wide)
        vs = Reshape(v6, narrow)
        kt = Transpose <perm = [0, 1, 3, 2]> (ks)
        s = MatMul(q, kt)
        t = Mul(s, scale)
        p = Softmax <axis = -1> (t)
        y0 = MatMul(p, vs)
        y1 = Transpose <perm = [0, 2, 1, 3]> (y0)
        y = Reshape(y1, join)
    """,
    # The same by broadcasting.
    "grouped": GROUPED.replace("MASKED", "t = Identity(u)"),
    "grouped_and_masked": GROUPED.replace("MASKED", "f5 = Unsqueeze(triangle_of_length, zeros)\n seen = Cast <to = 9> (f5)\n t = Where(seen, u, far)"),
    # One head, without axes for it.
    "one_head": each("* = MatMul(x, w*)\n") + """
        kt = Transpose <perm = [0, 2, 1]> (k)
        s = MatMul(q, kt)
        t = Mul(s, scale)
        p = Softmax <axis = -1> (t)
        y = MatMul(p, v)
    """,
    # (L, B, D) in, as torch's own layer has it.
    "time_first": """
        xt = Transpose <perm = [1, 0, 2]> (x)
        shape = Shape(xt)
        l = Slice(shape, zeros, ones)
        b = Slice(shape, ones, twos)
        four = Constant <value_ints = [4]> ()
        eight = Constant <value_ints = [8]> ()
        flat = Mul(b, four)
        parts = Concat <axis = 0> (l, flat, eight)
        q0 = MatMul(xt, wq)
        q1 = Reshape(q0, parts)
        q = Transpose <perm = [1, 0, 2]> (q1)
        k0 = MatMul(xt, wk)
        k1 = Reshape(k0, parts)
        kt = Transpose <perm = [1, 2, 0]> (k1)
        v0 = MatMul(xt, wv)
        v1 = Reshape(v0, parts)
        v = Transpose <perm = [1, 0, 2]> (v1)
        qs = Mul(q, scale)
        t = MatMul(qs, kt)
        p = Softmax <axis = -1> (t)
        y0 = MatMul(p, v)
        y1 = Transpose <perm = [1, 0, 2]> (y0)
        width = Constant <value_ints = [32]> ()
        joined = Concat <axis = 0> (l, b, width)
        y2 = Reshape(y1, joined)
        y = Transpose <perm = [1, 0, 2]> (y2)
    """,
}

NEAR_MISSES = {
    "softmax_of_another_axis": heads(TURNED + "t = Mul(s, scale)\n p = Softmax <axis = 2> (t)\n"),
    "sigmoid": heads(TURNED + "t = Mul(s, scale)\n p = Sigmoid(t)\n"),
    "probabilities_masked": heads(TURNED + SEEN + "t = Mul(s, scale)\n p0 = Softmax <axis = -1> (t)\n f = Cast <to = 1> (seen)\n p = Mul(p0, f)\n"),
    "scores_capped": plain("u = Tanh(s)\n t = Mul(u, root)\n"),
    "masked_by_a_small_number": plain(SEEN + "t = Where(seen, s, one)\n"),
    "a_filling_that_scores_may_reach": plain(SEEN + "t = Where(seen, s, low)\n"),
    "numbers_that_scores_may_reach": plain("f = Cast <to = 1> (mask)\n f4 = Unsqueeze(f, middles)\n seen = Cast <to = 9> (f4)\n b = Cast <to = 1> (seen)\n kept = Mul(b, s)\n g = Sub(one, b)\n lost = Mul(g, low)\n t = Add(kept, lost)\n"),
    "scores_squared": plain("t = Mul(s, s)\n"),
    "a_scale_for_each_position": plain("t = Mul(s, positions)\n"),
    "kept_or_lost_by_other_numbers": plain("kept = Mul(s, positions)\n g = Sub(one, positions)\n lost = Mul(g, low)\n t = Add(kept, lost)\n"),
    "kept_by_one_and_lost_by_another": plain("kept = Mul(s, positions)\n g = Sub(one, triangle)\n lost = ReduceSum <keepdims = 0> (g)\n t = Add(kept, lost)\n"),
    "a_scale_for_each_query": plain("e = Exp(rows)\n t = Mul(s, e)\n"),
    "a_divided_number_for_each_head": plain("t = Div(temperature, s)\n"),
    "masked_before_each_head_is_scaled": plain(ADDED + "u = Add(s, bias)\n t = Mul(u, temperature)\n"),
    "lifted_to_a_small_number": plain("t = Max(s, one)\n"),
    "clipped_from_above": plain("t = Clip(s, lowest, one)\n"),
    "probabilities_by_head": heads(TURNED + "t = Mul(s, scale)\n p0 = Softmax <axis = -1> (t)\n p = Mul(p0, temperature)\n"),
    "logarithms": heads(TURNED + "t = Mul(s, scale)\n p = LogSoftmax <axis = -1> (t)\n"),
    "probabilities_turned": heads(TURNED + "t = Mul(s, scale)\n p0 = Softmax <axis = -1> (t)\n p = Transpose <perm = [0, 1, 3, 2]> (p0)\n"),
}
