//! A small client of the session server: connects, comes back after a cut, misses nothing, repeats nothing.
