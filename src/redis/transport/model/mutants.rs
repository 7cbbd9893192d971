//! Mistakes, each built into the transport: the scenarios must find what it breaks.
