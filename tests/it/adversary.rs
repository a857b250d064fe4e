//! At scale and around failures: what only many keys, many held requests, several workers or a
//! store that fails halfway bring to light.

mod held;
mod slots;
