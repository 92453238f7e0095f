//! Typed tools: registry, validation, repair, isolated execution; the built-in set.
