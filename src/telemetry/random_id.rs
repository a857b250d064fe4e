//! Random numbers for the ids of requests and spans: unlikely to meet, and cheap.
//!
//! Each thread has a generator of its own (xoroshiro128**), seeded by the system. Ids are no secrets: who
//! has seen some can work out others.

use std::cell::Cell;

thread_local! {
    static STATE: Cell<[u64; 2]> = Cell::new(seed());
}

fn seed() -> [u64; 2] {
    let mut bytes = [0; 16];
    // Without randomness ids repeat from one start to the next; requests are served all the same.
    let _ = getrandom::fill(&mut bytes);
    let seed = u128::from_ne_bytes(bytes).max(1);
    [seed as u64, (seed >> 64) as u64]
}

/// Any number but 0, which stands for no id.
pub(super) fn random_u64() -> u64 {
    STATE.with(|state| {
        let [one, other] = state.get();
        let result = one.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let other = one ^ other;
        state.set([one.rotate_left(24) ^ other ^ (other << 16), other.rotate_left(37)]);
        result.max(1)
    })
}

pub(super) fn random_u128() -> u128 {
    (u128::from(random_u64()) << 64) | u128::from(random_u64())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_do_not_repeat_within_threads_or_between_them() {
        let some = || (0..1000).map(|_| random_u128()).collect::<Vec<_>>();
        let threads = [(); 4].map(|()| std::thread::spawn(some));
        let all: HashSet<_> = threads.into_iter().flat_map(|it| it.join().unwrap()).collect();
        assert_eq!(all.len(), 4000);
    }
}
