"""Dropout masks by key in NumPy: a 32-bit hash of every place, compared with the rate."""

import numpy as np

WORD = 0xFFFFFFFF


def mix(words):
    """lowbias32, by Chris Wellons."""
    words = np.asarray(words, dtype=np.uint64)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        words = ((words ^ (words >> np.uint64(shift))) * np.uint64(factor)) & np.uint64(WORD)
    return words ^ (words >> np.uint64(16))


def mask(shape, rate, key, layer=0, call=0, part=0):
    """What dropout number ``layer`` multiplies by, for one part of a client's samples."""
    key = (int(key) + layer + 2**16 * call + 2**32 * part) % 2**64
    low = mix(key & WORD)
    high = mix((key >> 32) ^ int(low))
    noise = mix(mix(np.arange(np.prod(shape), dtype=np.uint64) ^ low) ^ high).reshape(shape)
    return np.where(noise < int(rate * 2**32), 0.0, 1 / (1 - rate))
