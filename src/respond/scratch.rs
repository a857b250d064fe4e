//! Short texts without an allocation each: a buffer is used again once its answer is out.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// Buffers a thread keeps, and how large each may be to be kept.
const KEPT: usize = 8;
const LARGEST: usize = 4 * 1024;

thread_local! {
    static FREE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer on loan from its thread.
#[derive(Debug, Clone)]
pub struct Scratch(Vec<u8>);

impl Scratch {
    pub fn new() -> Self {
        let used = FREE.with_borrow_mut(Vec::pop);
        Scratch(used.unwrap_or_else(|| Vec::with_capacity(LARGEST / 4)))
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl From<Vec<u8>> for Scratch {
    fn from(text: Vec<u8>) -> Self {
        Scratch(text)
    }
}

impl Deref for Scratch {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let mut text = std::mem::take(&mut self.0);
        text.clear();
        if (1..=LARGEST).contains(&text.capacity()) {
            // While the thread ends there is nothing left to return it to.
            let _ = FREE.try_with(|free| {
                let mut free = free.borrow_mut();
                if free.len() < KEPT {
                    free.push(text);
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_empty() {
        let mut first = Scratch::new();
        first.extend_from_slice(b"secret of another request");
        let place = first.as_ptr();
        drop(first);
        let second = Scratch::new();
        assert_eq!((second.as_ptr(), second.len()), (place, 0));
    }

    #[test]
    fn a_large_buffer_is_not_kept() {
        drop(Scratch::from(Vec::with_capacity(LARGEST + 1)));
        assert!(Scratch::new().capacity() <= LARGEST);
    }
}
